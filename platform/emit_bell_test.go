package platform_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/platformtest"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

// armed makes emitters ring, as a host that hears them does at each poll.
const armed = `select pgmill.arm(true)`

// ears listens on the bell's channel and answers what was notified so far.
func ears(t *testing.T, dsn string) func() []string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgtest.Direct(t, dsn))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	must(t, conn, `listen pgmill`)
	return func() []string {
		// Notifications come in the order of the commits: after ours, all are here.
		must(t, conn, `select pg_notify('pgmill', 'that is all')`)
		heard := []string{}
		for {
			n, err := conn.WaitForNotification(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if n.Payload == "that is all" {
				return heard
			}
			heard = append(heard, n.Payload)
		}
	}
}

// F15: five thousand events in one transaction commit, with at most one
// notification, which is short and says nothing.
func TestEmitOfFiveThousandRingsOnce(t *testing.T) {
	t.Parallel()
	dsn := platformtest.DSN(t)
	pool := platformtest.Pool(t, dsn)
	heard := ears(t, dsn)
	const n = 5000
	tests := []struct {
		name string
		emit func(tx pgx.Tx) error
	}{
		{"one call of Emit", func(tx pgx.Tx) error {
			events := make([]platform.NewEvent, n)
			for i := range events {
				events[i] = event(func(e *platform.NewEvent) { e.Data = map[string]int{"order_id": i} })
			}
			_, err := platform.Emit(t.Context(), tx, events...)
			return err
		}},
		{"one call of mill.emit each", func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), `select mill.emit('orders.placed', 'order-' || n, null, jsonb_build_object('order_id', n)) from generate_series(1, $1::int) n`, n)
			return err
		}},
		{"a savepoint each", func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), `
				do $$ begin
				  for n in 1..5000 loop
				    begin perform mill.emit('orders.placed', 'order-' || n); exception when division_by_zero then null; end;
				  end loop;
				end $$`)
			return err
		}},
	}
	for i, tt := range tests {
		must(t, pool, armed)
		if err := pgx.BeginFunc(t.Context(), pool, tt.emit); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if got := heard(); len(got) != 1 || len(got[0]) >= 200 || got[0] != "" {
			t.Errorf("%s: %d notifications %.300q; want one without facts", tt.name, len(got), got)
		}
		must(t, pool, `select pgmill.advance()`)
		if got := ask[int](t, pool, `select count(*) from pgmill.log`); got != (i+1)*n {
			t.Errorf("%s: %d events have positions, want %d", tt.name, got, (i+1)*n)
		}
	}
}

func TestEmitRings(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		sql  string
		want int
	}{
		{"each transaction that emits", `begin; select mill.emit('a', 't'); commit; begin; select mill.emit('a', 't'); commit`, 2},
		{"no transaction that is rolled back", `begin; select mill.emit('a', 't'); rollback`, 0},
		{"no transaction that is quiet", `begin; set local pgmill.quiet = on; select mill.emit('a', 't'); commit`, 0},
		{"a repeated key does not ring again", `
			begin; select mill.emit('a', 't', options => '{"idempotency_key": "k"}'); commit;
			begin; select mill.emit('a', 't', options => '{"idempotency_key": "k"}'); commit`, 1},
		{"an event with options rings, too", `begin; select mill.emit('a', 't', options => '{"trace_id": "x"}'); commit`, 1},
		{"a list of events rings, too", `begin; select mill.emit_many('[{"type": "a", "target": "t"}, {"type": "a", "target": "t"}]'); commit`, 1},
		{"a quiet one can be prepared", `begin; set local pgmill.quiet = on; select mill.emit('a', 't'); prepare transaction 'emit_rings'; commit prepared 'emit_rings'`, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dsn := platformtest.DSN(t)
			heard := ears(t, dsn)
			conn, err := pgx.Connect(t.Context(), dsn)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(context.WithoutCancel(t.Context()))
			must(t, conn, armed)
			for _, s := range splitSQL(tt.sql) {
				if _, err := conn.Exec(t.Context(), s); err != nil {
					t.Fatalf("%s: %v", s, err)
				}
			}
			if got := heard(); len(got) != tt.want {
				t.Errorf("%d notifications %q, want %d", len(got), got, tt.want)
			}
		})
	}
}

// Emitters are silent while a host is awake or none hears them.
func TestEmitIsSilentWhereNobodyNeedsABell(t *testing.T) {
	t.Parallel()
	dsn := platformtest.DSN(t)
	pool := platformtest.Pool(t, dsn)
	heard := ears(t, dsn)
	tests := []struct {
		name, before string
		want         int
	}{
		{"no host has ever been there", `select 1`, 0},
		{"a host hears", armed, 1},
		{"a host is awake, for the next minute", `select pgmill.look(0, 60000)`, 0},
		{"another host's poll does not end the silence", `select pgmill.arm(false)`, 0},
		{"the host goes to sleep", armed, 1},
		{"events go on", `select setval('pgmill.event_id', pg_sequence_last_value('pgmill.event_id') + 9000)`, 1},
		{"and a host that looks arms again", `select pgmill.look(0, 0)`, 1},
		{"however many come", `select setval('pgmill.event_id', pg_sequence_last_value('pgmill.event_id') + 9000)`, 1},
		{"the last host is gone for longer than it armed", `select setval('pgmill.event_id', pg_sequence_last_value('pgmill.event_id') + 9000)`, 0},
	}
	for _, tt := range tests {
		must(t, pool, tt.before)
		platformtest.Emit(t, pool, event(nil), event(nil))
		if got := heard(); len(got) != tt.want {
			t.Errorf("%s: %d notifications %q, want %d", tt.name, len(got), got, tt.want)
		}
	}
}
