package platform

import (
	"strings"
	"testing"
)

func TestCleanSendsWhateverIsDoubtfulToMillEmit(t *testing.T) {
	t.Parallel()
	plain := NewEvent{Type: "orders.placed", Target: "order-17", Key: "customer 5"}
	for _, tt := range []struct {
		name  string
		event func(e NewEvent) NewEvent
		data  string
		want  bool
	}{
		{name: "ids are clean", data: `{"order":17,"lines":["a-1","b-2"]}`, want: true},
		{name: "a URL is looked at", data: `{"u":"https://example.com"}`},
		{name: "so is a name that credentials have", data: `{"api_key":"x"}`},
		{name: "an array is no object", data: `[1]`},
		{name: "long data is looked at", data: `{"a":"` + strings.Repeat("a", 300) + `"}`},
		{name: "a hexadecimal id is clean", data: `{"id":"4e2f0e11-5e6a"}`, want: true},
		{name: "a number that Postgres prints at length is looked at", data: `{"n":1e+300}`},
		{name: "bytes beyond ASCII are looked at", data: `{"a":"ä"}`},
		{name: "a malformed type is refused by mill.emit", event: func(e NewEvent) NewEvent { e.Type = "Orders..placed"; return e }, data: `{}`},
		{name: "a malformed target is too", event: func(e NewEvent) NewEvent { e.Target = "a b"; return e }, data: `{}`},
		{name: "an idempotency key takes the long way", event: func(e NewEvent) NewEvent { e.IdempotencyKey = "k"; return e }, data: `{}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := plain
			if tt.event != nil {
				e = tt.event(e)
			}
			if got := e.clean("install", tt.data); got != tt.want {
				t.Errorf("clean(%+v, %s) = %v, want %v", e, tt.data, got, tt.want)
			}
		})
	}
}
