package platform_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/platformtest"
)

// What a plain event is stands twice, in Go for the choice of the way and in SQL for
// the wall: both must answer alike for a plain one and for each kind of what is none.
func TestCleanIsWhatTheOutboxTakes(t *testing.T) {
	t.Parallel()
	type doubt struct {
		name  string
		event platform.NewEvent
		clean bool
	}
	with := func(change func(*platform.NewEvent)) platform.NewEvent {
		return event(func(e *platform.NewEvent) { e.Data = raw(`{"order": 17}`); change(e) })
	}
	data := func(json string) platform.NewEvent {
		return with(func(e *platform.NewEvent) { e.Data = raw("%s", json) })
	}
	doubts := []doubt{
		{"an id", data(`{"order": 17}`), true},
		{"no data", with(func(e *platform.NewEvent) { e.Data = nil }), true},
		{"ids and words", data(`{"order": "b-17", "lines": ["a.1", "a.2"], "of": {"org": 7}}`), true},
		{"a key of several words", with(func(e *platform.NewEvent) { e.Key = "customer 5" }), true},
		{"a type of one word", with(func(e *platform.NewEvent) { e.Type = "placed_2" }), true},
		{"all that a target may hold", with(func(e *platform.NewEvent) { e.Target = "aZ9_.:/@#+=~-" }), true},
		{"an empty type", with(func(e *platform.NewEvent) { e.Type = "" }), false},
		{"a type in upper case", with(func(e *platform.NewEvent) { e.Type = "Orders" }), false},
		{"a type with an empty word", with(func(e *platform.NewEvent) { e.Type = "orders..placed" }), false},
		{"a type that ends in a dot", with(func(e *platform.NewEvent) { e.Type = "orders." }), false},
		{"a type with a blank", with(func(e *platform.NewEvent) { e.Type = "orders placed" }), false},
		{"a long type", with(func(e *platform.NewEvent) { e.Type = strings.Repeat("t", 129) }), false},
		{"an empty target", with(func(e *platform.NewEvent) { e.Target = "" }), false},
		{"a target with a blank", with(func(e *platform.NewEvent) { e.Target = "a b" }), false},
		{"a target beyond ASCII", with(func(e *platform.NewEvent) { e.Target = "bär" }), false},
		{"a target of two lines", with(func(e *platform.NewEvent) { e.Target = "a\nb" }), false},
		{"a target that ends its line", with(func(e *platform.NewEvent) { e.Target = "a\n" }), false},
		{"a long target", with(func(e *platform.NewEvent) { e.Target = strings.Repeat("t", 201) }), false},
		{"a key with a tab", with(func(e *platform.NewEvent) { e.Key = "a\tb" }), false},
		{"a key that ends its line", with(func(e *platform.NewEvent) { e.Key = "a\n" }), false},
		{"a long key", with(func(e *platform.NewEvent) { e.Key = strings.Repeat("k", 201) }), false},
		{"another scope", with(func(e *platform.NewEvent) { e.Scope = "org:acme" }), false},
		{"no scope at all", with(func(e *platform.NewEvent) { e.Scope = "tenant" }), false},
		{"a trace", with(func(e *platform.NewEvent) { e.TraceID = "4bf92f3577b34da6" }), true},
		{"all that a trace may hold, and a key", with(func(e *platform.NewEvent) { e.TraceID, e.Key = "aZ9_.:-", "k" }), true},
		{"a trace with a blank", with(func(e *platform.NewEvent) { e.TraceID = "a b" }), false},
		{"a trace that ends its line", with(func(e *platform.NewEvent) { e.TraceID = "a\n" }), false},
		{"a long trace", with(func(e *platform.NewEvent) { e.TraceID = strings.Repeat("t", 129) }), false},
		{"data that is a list", data(`[17]`), false},
		{"data that is a word", data(`"order"`), false},
		{"data that is null", data(`null`), false},
		{"long data", data(`{"a": "` + strings.Repeat("a", 257) + `"}`), false},
		{"data of many", data(`{"a": [1` + strings.Repeat(", 1", 300) + `]}`), false},
	}
	for _, dirt := range []string{"https://h", "a=b", `a\b`, "-----BEGIN", "eyJhbGciOiJIUzI1NiJ9", "AKIAIOSFODNN7", "ASIAIOSFODNN7", "ghp_0123", "gho_0123", "github_pat_01",
		"xoxb-01", "sk-01", "sk_live_01", "AIzaSyA", "glpat-01", "Bearer abc", "password", "passphrase", "my secret", "token", "api_key"} {
		for _, written := range []string{dirt, strings.ToUpper(dirt), strings.ToLower(dirt), "of " + dirt + " it"} {
			text, err := json.Marshal(written)
			if err != nil {
				t.Fatal(err)
			}
			doubts = append(doubts, doubt{"the value " + written, data(`{"a": ` + string(text) + `}`), false},
				doubt{"the name " + written, data(`{` + string(text) + `: 1}`), false})
		}
	}
	pool := platformtest.DB(t)
	for _, tt := range doubts {
		q, err := platform.QueueEmit(&pgx.Batch{}, tt.event)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		text, _, err := texts(tt.event)
		if err != nil {
			t.Fatal(err)
		}
		_, refused := pool.Exec(t.Context(), `
			insert into mill.outbox (type, target, key, trace_id, data, scope)
			values ($1, $2, nullif($3, ''), nullif($4, ''), $5::text::jsonb, coalesce(nullif($6, ''), 'install'))`,
			tt.event.Type, tt.event.Target, tt.event.Key, tt.event.TraceID, text, tt.event.Scope)
		if refused != nil && sqlState(refused) != "44000" { // the view's check
			t.Fatalf("%s: %v", tt.name, refused)
		}
		if short := strings.Contains(q.SQL, "mill.outbox"); short != tt.clean || (refused == nil) != tt.clean {
			t.Errorf("%s: clean in Go %v, taken by mill.outbox %v (%v); want both %v", tt.name, short, refused == nil, refused, tt.clean)
		}
	}
}
