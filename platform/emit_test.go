package platform_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/platformtest"
)

// N6, F15: lengths count bytes, refusals carry a SQLSTATE, and nothing is half done,
// whichever way the event came in.
func TestEmitRefusesWithASQLState(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	many := strings.Repeat
	tests := []struct {
		name  string
		event platform.NewEvent
		state string
		is    error
	}{
		{"no type", event(func(e *platform.NewEvent) { e.Type = "" }), "MI001", platform.ErrCharset},
		{"upper case in a type", event(func(e *platform.NewEvent) { e.Type = "orders.Placed" }), "MI001", platform.ErrCharset},
		{"an empty word in a type", event(func(e *platform.NewEvent) { e.Type = "orders..placed" }), "MI001", platform.ErrCharset},
		{"a star in a type", event(func(e *platform.NewEvent) { e.Type = "orders.*" }), "MI001", platform.ErrCharset},
		{"a quote in a type", event(func(e *platform.NewEvent) { e.Type = `orders"; drop` }), "MI001", platform.ErrCharset},
		{"a newline after a type", event(func(e *platform.NewEvent) { e.Type = "orders.placed\n" }), "MI001", platform.ErrCharset},
		{"a multibyte type of 300 characters (F15)", event(func(e *platform.NewEvent) { e.Type = many("ä", 300) }), "MI001", platform.ErrCharset},
		{"a type of 129 bytes", event(func(e *platform.NewEvent) { e.Type = many("t", 129) }), "MI002", platform.ErrSize},
		{"no target", event(func(e *platform.NewEvent) { e.Target = "" }), "MI001", platform.ErrCharset},
		{"a quote in a target", event(func(e *platform.NewEvent) { e.Target = "o'brien" }), "MI001", platform.ErrCharset},
		{"a blank in a target", event(func(e *platform.NewEvent) { e.Target = "order 17" }), "MI001", platform.ErrCharset},
		{"a multibyte target", event(func(e *platform.NewEvent) { e.Target = "bücher" }), "MI001", platform.ErrCharset},
		{"a target of 201 bytes", event(func(e *platform.NewEvent) { e.Target = many("t", 201) }), "MI002", platform.ErrSize},
		{"a control character in a key", event(func(e *platform.NewEvent) { e.Key = "a\x01b" }), "MI001", platform.ErrCharset},
		{"a newline in a key", event(func(e *platform.NewEvent) { e.Key = "a\nb" }), "MI001", platform.ErrCharset},
		{"a key of 101 characters and 202 bytes", event(func(e *platform.NewEvent) { e.Key = many("é", 101) }), "MI002", platform.ErrSize},
		{"an unknown scope", event(func(e *platform.NewEvent) { e.Scope = "tenant:7" }), "MI001", platform.ErrCharset},
		{"a scope of no organisation", event(func(e *platform.NewEvent) { e.Scope = "org:" }), "MI001", platform.ErrCharset},
		{"a scope with a quote", event(func(e *platform.NewEvent) { e.Scope = "org:o'x" }), "MI001", platform.ErrCharset},
		{"a scope that is too long", event(func(e *platform.NewEvent) { e.Scope = "org:" + many("x", 101) }), "MI001", platform.ErrCharset},
		{"data that is a list", event(func(e *platform.NewEvent) { e.Data = []int{1} }), "MI003", platform.ErrNotPointer},
		{"data that is a string", event(func(e *platform.NewEvent) { e.Data = "order-17" }), "MI003", platform.ErrNotPointer},
		{"data that is a number", event(func(e *platform.NewEvent) { e.Data = 17 }), "MI003", platform.ErrNotPointer},
		{"data that is null", event(func(e *platform.NewEvent) { e.Data = raw("null") }), "MI003", platform.ErrNotPointer},
		{"a string of 257 bytes", event(func(e *platform.NewEvent) { e.Data = map[string]string{"s": many("x", 257)} }), "MI002", platform.ErrSize},
		{"a string of 129 characters and 258 bytes", event(func(e *platform.NewEvent) { e.Data = map[string]string{"s": many("é", 129)} }), "MI002", platform.ErrSize},
		{"a long string deep inside", event(func(e *platform.NewEvent) { e.Data = raw(`{"a":[{"b":[[%q]]}]}`, many("x", 257)) }), "MI002", platform.ErrSize},
		{"a long name", event(func(e *platform.NewEvent) { e.Data = raw(`{"a":[{%q:1}]}`, many("x", 257)) }), "MI002", platform.ErrSize},
		{"data of more than 4096 bytes", event(func(e *platform.NewEvent) { e.Data = raw(`{"n":[%s1]}`, many("1,", 2048)) }), "MI002", platform.ErrSize},
		{"a megabyte (F15)", event(func(e *platform.NewEvent) { e.Data = map[string]string{"s": many("x", 1<<20)} }), "MI002", platform.ErrSize},
		{"NUL in a type", event(func(e *platform.NewEvent) { e.Type = "a\x00b" }), "22021", platform.ErrCharset},
		{"NUL in a target", event(func(e *platform.NewEvent) { e.Target = "a\x00b" }), "22021", platform.ErrCharset},
		{"NUL in a key", event(func(e *platform.NewEvent) { e.Key = "a\x00b" }), "22021", platform.ErrCharset},
		{"NUL in data", event(func(e *platform.NewEvent) { e.Data = map[string]string{"s": "a\x00b"} }), "22P05", platform.ErrCharset},
		{"NUL in a name", event(func(e *platform.NewEvent) { e.Data = map[string]int{"a\x00b": 1} }), "22P05", platform.ErrCharset},
		{"a lone surrogate", event(func(e *platform.NewEvent) { e.Data = raw(`{"s":"\ud800"}`) }), "22P02", platform.ErrCharset},
		{"a lone surrogate in a name", event(func(e *platform.NewEvent) { e.Data = raw(`{"\udc00":1}`) }), "22P02", platform.ErrCharset},
		{"NUL in an idempotency key", event(func(e *platform.NewEvent) { e.IdempotencyKey = "a\x00b" }), "22P05", platform.ErrCharset},
		{"a control character in an idempotency key", event(func(e *platform.NewEvent) { e.IdempotencyKey = "a\tb" }), "MI001", platform.ErrCharset},
		{"an idempotency key of 201 bytes", event(func(e *platform.NewEvent) { e.IdempotencyKey = many("k", 201) }), "MI002", platform.ErrSize},
		{"the type of a tick (F61)", event(func(e *platform.NewEvent) { e.Type = "schedule.nightly" }), "MI001", platform.ErrCharset},
		{"a blank in a trace id", event(func(e *platform.NewEvent) { e.TraceID = "a b" }), "MI001", platform.ErrCharset},
		{"a trace id of 129 bytes", event(func(e *platform.NewEvent) { e.TraceID = many("f", 129) }), "MI002", platform.ErrSize},
	}
	for _, w := range ways(t, pool) {
		for _, tt := range tests {
			_, err := w.emit(t.Context(), tt.event)
			state := sqlState(err)
			if tt.state == "22021" && state == "22P05" { // the same byte, inside emit_many's JSON
				state = "22021"
			}
			if state != tt.state {
				t.Errorf("by %s: %s: SQLSTATE %q of %v; want %s", w.name, tt.name, sqlState(err), err, tt.state)
			}
			inGo := w.name == "pgx" || w.name == "pgx, as one of three" || w.name == "database/sql"
			if inGo && !errors.Is(err, tt.is) {
				t.Errorf("by %s: %s: %v is not %q", w.name, tt.name, err, tt.is)
			}
		}
	}
	nothingThere(t, pool)
}

// F15: at the caps events are accepted, and get their position.
func TestEmitAcceptsWhatFits(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	many := strings.Repeat
	tests := []struct {
		name  string
		event platform.NewEvent
	}{
		{"the smallest", platform.NewEvent{Type: "a", Target: "b"}},
		{"a type of 128 bytes", event(func(e *platform.NewEvent) { e.Type = many("t", 128) })},
		{"a type that only looks like a tick's", event(func(e *platform.NewEvent) { e.Type = "schedule_nightly.schedule.x" })},
		{"a target of 200 bytes", event(func(e *platform.NewEvent) { e.Target = many("t", 200) })},
		{"a key of 100 characters and 200 bytes", event(func(e *platform.NewEvent) { e.Key = many("é", 100) })},
		{"a key with quotes, backslashes and blanks", event(func(e *platform.NewEvent) { e.Key = `o'brien "the" \ $1 %s` })},
		{"a string of 128 characters and 256 bytes", event(func(e *platform.NewEvent) { e.Data = map[string]string{"s": many("é", 128)} })},
		{"data of 4096 bytes", event(func(e *platform.NewEvent) { e.Data = raw(`{"n": [1%s]}`, many(", 1", 1362)) })},
		{"an emoji", event(func(e *platform.NewEvent) { e.Data = map[string]string{"s": "🦉"}; e.Key = "🦉" })},
		{"a pair of surrogates", event(func(e *platform.NewEvent) { e.Data = raw(`{"s":"\ud83e\udd89"}`) })},
		{"no data", event(func(e *platform.NewEvent) { e.Data = struct{}{} })},
		{"an organisation's", event(func(e *platform.NewEvent) { e.Scope = "org:acme-1.x" })},
		{"the provider's", event(func(e *platform.NewEvent) { e.Scope = "provider" })},
		{"a trace id of 128 bytes", event(func(e *platform.NewEvent) { e.TraceID = many("f", 128) })},
	}
	for _, w := range ways(t, pool) {
		for _, tt := range tests {
			id, err := w.emit(t.Context(), tt.event)
			if err != nil {
				t.Errorf("by %s: %s: %v", w.name, tt.name, err)
				continue
			}
			want, _, _ := texts(tt.event)
			if !ask[bool](t, pool, `
				select type = $2 and target = $3 and coalesce(key, '') = $4 and data = $5::text::jsonb and scope = coalesce(nullif($6, ''), 'install') and coalesce(trace_id, '') = $7
				  from pgmill.event where id = $1`, id, tt.event.Type, tt.event.Target, tt.event.Key, want, tt.event.Scope, tt.event.TraceID) {
				t.Errorf("by %s: %s: event %d is not what was emitted", w.name, tt.name, id)
			}
		}
	}
	must(t, pool, `select pgmill.advance()`)
	if n := ask[int](t, pool, `select count(*) from mill.events where pos is null`); n != 0 {
		t.Errorf("%d events have no position", n)
	}
	if n := ask[int](t, pool, `select max(octet_length(data::text)) from pgmill.event`); n != 4096 {
		t.Errorf("the largest data has %d bytes; the test wants one of 4096", n)
	}
}

// F15, N6: names that only differ after their 64th byte are different names, and
// quotes are characters like others.
func TestEmitKeepsLongAndQuotedNamesApart(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	prefix := strings.Repeat("p", 64)
	var events []platform.NewEvent
	for _, end := range []string{"a", "b", `'`, `"`, `""`, `\`, `\\`, `';--`, `$$`} {
		events = append(events, event(func(e *platform.NewEvent) { e.Key = prefix + end; e.IdempotencyKey = prefix + end }))
	}
	for _, end := range []string{"a", "b"} {
		events = append(events, event(func(e *platform.NewEvent) { e.Type = prefix + "." + end; e.Target = prefix + end }))
	}
	var ids []int64
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) (err error) {
		ids, err = platform.Emit(t.Context(), tx, events...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range events {
		if !ask[bool](t, pool, `select type = $2 and target = $3 and coalesce(key, '') = $4 from pgmill.event where id = $1`, ids[i], e.Type, e.Target, e.Key) {
			t.Errorf("event %d is not %+v", ids[i], e)
		}
	}
	if n := ask[int](t, pool, `select count(distinct (type, target, key)) from pgmill.event`); n != len(events) {
		t.Errorf("%d different names of %d", n, len(events))
	}
	must(t, pool, `select pgmill.advance()`)
	if n := ask[int](t, pool, `select count(*) from pgmill.log where type like $1`, prefix+".a"); n != 1 {
		t.Errorf("%d events of the first long type, want 1", n)
	}
}

// N33: integers above 2^53, booleans, null and digits in strings are the same when
// they come out.
func TestEmitKeepsValues(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	type pointers struct {
		ID   int64           `json:"id"`
		Neg  int64           `json:"neg"`
		Big  json.Number     `json:"big"`
		D    json.Number     `json:"d"`
		F    bool            `json:"f"`
		N    *int            `json:"n"`
		S    string          `json:"s"`
		E    []int           `json:"e"`
		Deep map[string]bool `json:"deep"`
	}
	in := pointers{ID: 1<<53 + 1, Neg: math.MinInt64, Big: "18446744073709551617", D: "0.1", S: "007", E: []int{}, Deep: map[string]bool{"x": true}}
	want, _ := json.Marshal(in)
	for _, w := range ways(t, pool) {
		id, err := w.emit(t.Context(), event(func(e *platform.NewEvent) { e.Data = in }))
		if err != nil {
			t.Errorf("by %s: %v", w.name, err)
			continue
		}
		e := platform.Event{Data: ask[json.RawMessage](t, pool, `select data from pgmill.event where id = $1`, id)}
		out, err := platform.Data[pointers](e)
		got, _ := json.Marshal(out)
		if err != nil || string(got) != string(want) {
			t.Errorf("by %s: %s came out as %s, %v", w.name, want, got, err)
		}
	}
}

func TestEmitManyIsAllOrNothingAndInOrder(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	var events []platform.NewEvent
	for i := range 100 {
		events = append(events, event(func(e *platform.NewEvent) {
			e.Data = map[string]int{"n": i}
			if i%10 == 0 { // mixes those that are checked one by one with those that are not
				e.IdempotencyKey = fmt.Sprint("key-", i)
			}
		}))
	}
	bad := append(append([]platform.NewEvent{}, events...), event(func(e *platform.NewEvent) { e.Target = "" }))
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		_, err := platform.Emit(t.Context(), tx, bad...)
		return err
	})
	if !errors.Is(err, platform.ErrCharset) {
		t.Errorf("Emit with a bad one among 101 = %v", err)
	}
	nothingThere(t, pool)

	for _, batch := range [][]platform.NewEvent{events, events[1:9]} {
		var ids []int64
		err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) (err error) {
			ids, err = platform.Emit(t.Context(), tx, batch...)
			return err
		})
		if err != nil || len(ids) != len(batch) {
			t.Fatalf("Emit of %d events = %d ids, %v", len(batch), len(ids), err)
		}
		for i, id := range ids {
			want, _, _ := texts(batch[i])
			if got := ask[string](t, pool, `select data::text from pgmill.event where id = $1`, id); strings.ReplaceAll(got, " ", "") != want {
				t.Fatalf("event %d of %d has data %s, want %s: ids are not in the order given", i, len(batch), got, want)
			}
		}
	}
	err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		ids, err := platform.Emit(t.Context(), tx)
		if len(ids) != 0 {
			t.Errorf("Emit of nothing = %v", ids)
		}
		return err
	})
	if err != nil {
		t.Errorf("Emit of nothing = %v", err)
	}
}

// What Emit itself does not send can still be sent to the SQL functions.
func TestEmitFunctionsRefuseMalformedCalls(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	tests := []struct{ name, call, state string }{
		{"a null type", `mill.emit(null, 't')`, "MI001"},
		{"a null target", `mill.emit('a', null)`, "MI001"},
		{"a null scope", `mill.emit('a', 't', null, '{}', null)`, "MI001"},
		{"null data", `mill.emit('a', 't', null, null)`, "MI003"},
		{"an empty key", `mill.emit('a', 't', '')`, "MI001"},
		{"null options", `mill.emit('a', 't', null, '{}', 'install', null)`, "MI001"},
		{"options that are a list", `mill.emit('a', 't', null, '{}', 'install', '[]')`, "MI001"},
		{"an unknown option", `mill.emit('a', 't', null, '{}', 'install', '{"idempotencykey": "x"}')`, "MI001"},
		{"an empty idempotency key", `mill.emit('a', 't', null, '{}', 'install', '{"idempotency_key": ""}')`, "MI001"},
		{"an empty trace id", `mill.emit('a', 't', null, '{}', 'install', '{"trace_id": ""}')`, "MI001"},
		{"a null list", `mill.emit_many(null)`, "MI001"},
		{"a list that is an object", `mill.emit_many('{"type": "a", "target": "t"}')`, "MI001"},
		{"an item that is no object", `mill.emit_many('[{"type": "a", "target": "t"}, 5]')`, "MI001"},
		{"an item without a target", `mill.emit_many('[{"type": "a"}]')`, "MI001"},
		{"an item with an unknown field", `mill.emit_many('[{"type": "a", "target": "t", "payload": {}}]')`, "MI001"},
		{"an item with null data", `mill.emit_many('[{"type": "a", "target": "t", "data": null}]')`, "MI003"},
		{"an item with an empty key", `mill.emit_many('[{"type": "a", "target": "t", "key": ""}]')`, "MI001"},
		{"an item with an empty scope", `mill.emit_many('[{"type": "a", "target": "t", "scope": ""}]')`, "MI001"},
		{"an item with an empty trace id", `mill.emit_many('[{"type": "a", "target": "t", "trace_id": ""}]')`, "MI001"},
	}
	for _, tt := range tests {
		_, err := pool.Exec(t.Context(), `select `+tt.call)
		if sqlState(err) != tt.state {
			t.Errorf("%s: %s = %v; want SQLSTATE %s", tt.name, tt.call, err, tt.state)
		}
	}
	nothingThere(t, pool)
	if n := ask[int](t, pool, `select cardinality(mill.emit_many('[]'))`); n != 0 {
		t.Errorf("emit_many of an empty list answers %d ids", n)
	}
	var unmarshallable chan int
	_, err := platform.Emit(t.Context(), nil, event(func(e *platform.NewEvent) { e.Data = unmarshallable }))
	if !errors.Is(err, platform.ErrNotPointer) {
		t.Errorf("Emit of data that does not marshal = %v", err)
	}
}

// N2: an event exists if and when its transaction commits, and needs no bell.
func TestEmitCommitsWithItsTransaction(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	must(t, pool, `create table orders (id bigint)`)
	stop := errors.New("stop")
	emit := func(end error, quiet string) error {
		return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			must(t, tx, `insert into orders values (1)`)
			must(t, tx, `select set_config('pgmill.quiet', $1, true)`, quiet)
			if _, err := platform.Emit(t.Context(), tx, event(func(e *platform.NewEvent) { e.IdempotencyKey = "once" })); err != nil {
				return err
			}
			return end
		})
	}
	if err := emit(stop, ""); !errors.Is(err, stop) {
		t.Fatal(err)
	}
	nothingThere(t, pool)
	if n := ask[int](t, pool, `select pgmill.advance()`); n != 0 {
		t.Errorf("%d events of a rolled back transaction have a position", n)
	}
	// Committed, and nobody was told: the process died before a bell, say.
	if err := emit(nil, "on"); err != nil {
		t.Fatal(err)
	}
	if n := ask[int](t, pool, `select pgmill.advance()`); n != 1 {
		t.Errorf("advance = %d after the commit, want 1", n)
	}
	if orders := ask[int](t, pool, `select count(*) from orders`); orders != 1 {
		t.Errorf("%d orders, want the one of the committed transaction", orders)
	}
	// A savepoint that is rolled back takes its event with it, and only that.
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		for _, end := range []error{nil, stop, nil} {
			err := pgx.BeginFunc(t.Context(), tx, func(tx pgx.Tx) error {
				_, err := platform.Emit(t.Context(), tx, event(func(e *platform.NewEvent) { e.Type = "kept.one" }))
				return errors.Join(err, end)
			})
			if !errors.Is(err, end) {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	must(t, pool, `select pgmill.advance()`)
	if n := ask[int](t, pool, `select count(*) from pgmill.log where type = 'kept.one'`); n != 2 {
		t.Errorf("%d events of two savepoints that were kept and one that was not", n)
	}
}
