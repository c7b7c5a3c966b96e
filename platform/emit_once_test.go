package platform_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/platformtest"
)

// once is an event with an idempotency key.
func once(change func(*platform.NewEvent)) platform.NewEvent {
	e := event(func(e *platform.NewEvent) { e.IdempotencyKey, e.Data = "placed-17", map[string]int{"order_id": 17} })
	if change != nil {
		change(&e)
	}
	return e
}

// N6: a repeated key answers the first id; what else counts as the same event.
func TestEmitOfARepeatedKey(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	tests := []struct {
		name   string
		change func(*platform.NewEvent)
		want   string // "first", "new", or the SQLSTATE
	}{
		{"the same event", nil, "first"},
		{"the same data, its members in another order and spaced", func(e *platform.NewEvent) { e.Data = raw(`{ "order_id" : 17 }`) }, "first"},
		{"another trace id", func(e *platform.NewEvent) { e.TraceID = "4bf92f35" }, "first"},
		{"another target", func(e *platform.NewEvent) { e.Target = "order-18" }, "MI004"},
		{"another key", func(e *platform.NewEvent) { e.Key = "customer-1" }, "MI004"},
		{"other data", func(e *platform.NewEvent) { e.Data = map[string]int{"order_id": 18} }, "MI004"},
		{"a key that begins alike", func(e *platform.NewEvent) { e.IdempotencyKey += "-again" }, "new"},
		{"another scope", func(e *platform.NewEvent) { e.Scope = "org:acme" }, "new"},
		{"another type", func(e *platform.NewEvent) { e.Type = "orders.changed" }, "new"},
		{"no key", func(e *platform.NewEvent) { e.IdempotencyKey = "" }, "new"},
	}
	for _, w := range ways(t, pool) {
		must(t, pool, `delete from pgmill.event_key`)
		first, err := w.emit(t.Context(), once(nil))
		if err != nil {
			t.Fatalf("by %s: %v", w.name, err)
		}
		for _, tt := range tests {
			id, err := w.emit(t.Context(), once(tt.change))
			got := sqlState(err)
			switch {
			case err == nil && id == first:
				got = "first"
			case err == nil:
				got = "new"
			}
			if got != tt.want {
				t.Errorf("by %s: %s: %s (id %d, %v); want %s", w.name, tt.name, got, id, err, tt.want)
			}
			if inGo := w.name == "pgx" || w.name == "database/sql"; tt.want == "MI004" && inGo && !errors.Is(err, platform.ErrKeyReused) {
				t.Errorf("by %s: %s: %v is not ErrKeyReused", w.name, tt.name, err)
			}
		}
	}
}

func TestEmitRepeatedInOneCall(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	ids := platformtest.Emit(t, pool, once(nil), event(nil), once(nil))
	if ids[0] != ids[2] || ids[0] == ids[1] {
		t.Errorf("ids %v: want the first and the last to be the same event", ids)
	}
	if n := ask[int](t, pool, `select count(*) from pgmill.event`); n != 2 {
		t.Errorf("%d events, want 2", n)
	}
}

// X8: the seven days are the database's clock's. The key's row is moved back in
// time; nobody waits.
func TestEmitKeyIsFreeAfterSevenDays(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	first := platformtest.Emit(t, pool, once(nil))[0]
	other := once(func(e *platform.NewEvent) { e.Target = "order-18" })
	age := func(by string) { must(t, pool, `update pgmill.event_key set at = now() - $1::interval`, by) }

	age("6 days 23:59:50")
	if id := platformtest.Emit(t, pool, once(nil))[0]; id != first {
		t.Errorf("within seven days: id %d, want the first, %d", id, first)
	}
	age("7 days 00:00:01")
	second := platformtest.Emit(t, pool, other)[0]
	if second == first {
		t.Errorf("after seven days another event got the first id, %d", first)
	}
	if id := platformtest.Emit(t, pool, other)[0]; id != second {
		t.Errorf("the seven days did not start again: id %d, want %d", id, second)
	}
}

// Two transactions with one key at a time: the second waits for the first one's end.
func TestEmitOfOneKeyByTwoAtATime(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		second platform.NewEvent
		commit bool
		want   string
	}{
		{"the first commits: the second gets its id", once(nil), true, "first"},
		{"the first commits: another event is refused", once(func(e *platform.NewEvent) { e.Target = "order-18" }), true, "MI004"},
		{"the first rolls back: the second is the first", once(nil), false, "new"},
		{"the first rolls back: another event is the first", once(func(e *platform.NewEvent) { e.Target = "order-18" }), false, "new"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := platformtest.DB(t)
			first, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer first.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck // ended below
			ids, err := platform.Emit(t.Context(), first, once(nil))
			if err != nil {
				t.Fatal(err)
			}
			type answer struct {
				id  int64
				err error
			}
			second := make(chan answer, 1)
			go func() {
				id, err := emitAlone(t.Context(), pool, tt.second)
				second <- answer{id, err}
			}()
			blocked(t, pool, ask[uint32](t, first, `select pg_backend_pid()`))
			if tt.commit {
				err = first.Commit(t.Context())
			} else {
				err = first.Rollback(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
			a := <-second
			got := sqlState(a.err)
			switch {
			case a.err == nil && a.id == ids[0]:
				got = "first"
			case a.err == nil:
				got = "new"
			}
			if got != tt.want {
				t.Errorf("the second got %s (id %d, %v), want %s", got, a.id, a.err, tt.want)
			}
			if n := ask[int](t, pool, `select count(*) from pgmill.event`); n != 1 {
				t.Errorf("%d events, want 1", n)
			}
		})
	}
}

func emitAlone(ctx context.Context, pool *pgxpool.Pool, events ...platform.NewEvent) (id int64, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		id, err = last(platform.Emit(ctx, tx, events...))
		return err
	})
	return id, err
}
