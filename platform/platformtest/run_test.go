package platformtest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/platformtest"
)

// failing runs f as a test would and returns what it complained about.
func failing(f func(t *platformtest.T)) string {
	fake := platformtest.NewT()
	done := make(chan struct{})
	go func() { // Fatalf ends it
		defer close(done)
		f(fake)
	}()
	<-done
	return strings.Join(fake.Said(), "\n")
}

func counted(t *testing.T) *pgxpool.Pool {
	t.Helper()
	db := platformtest.DB(t)
	if _, err := db.Exec(t.Context(), "create table effect (target text, unique (target) deferrable initially deferred)"); err != nil {
		t.Fatal(err)
	}
	return db
}

func TestHandleRunsOneFunctionOnOneEvent(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	insert := func(ctx context.Context, tx pgx.Tx, e platform.Event) error {
		_, err := tx.Exec(ctx, "insert into effect values ($1)", e.Target)
		return err
	}
	tests := []struct {
		name   string
		handle func(ctx context.Context, tx pgx.Tx, e platform.Event) error
		want   string // part of the error
		rows   int
	}{
		{name: "what the handler wrote is committed", handle: insert, rows: 1},
		{name: "its error is returned and its writes are rolled back", want: "broken",
			handle: func(ctx context.Context, tx pgx.Tx, e platform.Event) error {
				return errors.Join(insert(ctx, tx, e), broken)
			}},
		{name: "a panic is an error", want: "panic: boo",
			handle: func(context.Context, pgx.Tx, platform.Event) error { panic("boo") }},
		{name: "a swallowed failure of a statement is an error", want: "failed statement",
			handle: func(ctx context.Context, tx pgx.Tx, e platform.Event) error {
				_, _ = tx.Exec(ctx, "select 1/0")
				return nil
			}},
		{name: "a failed commit is an error", want: "duplicate key",
			handle: func(ctx context.Context, tx pgx.Tx, e platform.Event) error {
				return errors.Join(insert(ctx, tx, e), insert(ctx, tx, e))
			}},
		{name: "the transaction is not the handler's to end", want: "return an error to roll it back",
			handle: func(ctx context.Context, tx pgx.Tx, _ platform.Event) error { return tx.Commit(ctx) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			db := counted(t)
			s := platform.Subscription{Name: "test.one", Events: []string{"test.*"}, Handle: tt.handle}
			err := platformtest.Handle(t, db, s, platform.NewEvent{Type: "test.done", Target: "a", Key: "k", Scope: "org:x", TraceID: "tr", Data: map[string]int{"n": 1}})
			if got := platformtestError(err); !strings.Contains(got, tt.want) || (tt.want == "") != (err == nil) {
				t.Errorf("Handle = %q, want %q in it", got, tt.want)
			}
			var rows int
			if err := db.QueryRow(t.Context(), "select count(*) from effect").Scan(&rows); err != nil || rows != tt.rows {
				t.Errorf("rows = %d, %v; want %d", rows, err, tt.rows)
			}
		})
	}
}

func platformtestError(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestHandleGivesTheEventAsAHostWould(t *testing.T) {
	t.Parallel()
	db := platformtest.DB(t)
	var got platform.Event
	s := platform.Subscription{Name: "test.batch", Events: []string{"*"}, HandleBatch: func(_ context.Context, _ pgx.Tx, es []platform.Event) error {
		got = es[0]
		return nil
	}}
	if err := platformtest.Handle(t, db, s, platform.NewEvent{Type: "test.done", Target: "a", Key: "k", Scope: "org:x", TraceID: "tr", Data: map[string]int{"n": 1}}); err != nil {
		t.Fatal(err)
	}
	if got.Pos != 1 || got.Type != "test.done" || got.Target != "a" || got.Key != "k" || got.Scope != "org:x" || got.TraceID != "tr" || string(got.Data) != `{"n": 1}` || got.EmittedAt.IsZero() {
		t.Errorf("event = %+v (data %s)", got, got.Data)
	}
}

func TestHandleRefusesAnEventThatTheFunctionDoesNotListenTo(t *testing.T) {
	t.Parallel()
	db := platformtest.DB(t)
	said := failing(func(fake *platformtest.T) {
		_ = platformtest.Handle(fake, db, reserve, platform.NewEvent{Type: "orders.paid", Target: "a"})
	})
	if want := "stock.reserve does not listen to orders.paid"; !strings.Contains(said, want) {
		t.Errorf("said %q, want %q in it", said, want)
	}
}

func TestWaitForFailsWithWhatTheViewsSay(t *testing.T) {
	t.Parallel()
	db := platformtest.DB(t)
	said := failing(func(fake *platformtest.T) { platformtest.WaitFor(fake, db, "select 1/0 = 1") })
	if !strings.Contains(said, "division by zero") {
		t.Errorf("a wrong query: said %q", said)
	}
	said = failing(func(fake *platformtest.T) {
		platformtest.WaitWithin(fake, db, time.Second, "select $1::int = 2", 1)
	})
	for _, want := range []string{"select $1::int = 2 [1]", "last answer false", "mill.why_not_running", "mill.subscriptions"} {
		if !strings.Contains(said, want) {
			t.Errorf("said %q, want %q in it", said, want)
		}
	}
}

func TestHostFailsTheTestWhenItCannotStart(t *testing.T) {
	t.Parallel()
	said := failing(func(fake *platformtest.T) { platformtest.Host(fake, "postgres://nobody@127.0.0.1:1/none?sslmode=bad") })
	if !strings.Contains(said, "before it was ready") {
		t.Errorf("said %q", said)
	}
}

func TestStopDrainsAHost(t *testing.T) {
	t.Parallel()
	dsn := platformtest.DSN(t)
	db := platformtest.Pool(t, dsn)
	w := platformtest.Host(t, dsn)
	platformtest.WaitFor(t, db, "select live from mill.instances where id = $1", w.ID())
	platformtest.Stop(t, w)
	platformtest.WaitFor(t, db, "select not live from mill.instances where id = $1", w.ID())
}

func TestInvariantsSeeWhatIsBroken(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, sql, want string
	}{
		{"a lost event", "insert into pgmill.event (type, target, xid) values ('a', 'b', '3')", "has 0 positions"},
		{"a doubled event", "insert into pgmill.log select 2, event_id, at, key_hash, target_hash, type from pgmill.log; insert into pgmill.step select k + 1, base, 2, after_id, cluster from pgmill.step order by k desc limit 1", "has 2 positions"},
		{"a gap", "update pgmill.log set pos = 7", "positions from 7 to 7, head 1"},
		{"an event that is gone", "delete from pgmill.event", "which does not exist"},
		{"a cursor ahead", "insert into pgmill.cursor values ('test.one', 0, 100, 3)", "is at 3, head 1"},
		{"a cursor past its failing event", "insert into pgmill.cursor values ('test.one', 0, 100, 1); update pgmill.shard set failing_pos = 1", "failing 1"},
		{"a claim left behind", `insert into pgmill.river_job (state, attempted_at, attempted_by, args, kind, queue, max_attempts) select 'running', now(), array[id], '{}', 'x', 'subscription', 1 from pgmill.instance`, "(x) of"},
		{"a finished claim", `insert into pgmill.river_job (state, finalized_at, args, kind, queue, max_attempts) values ('completed', now(), '{}', 'x', 'subscription', 1)`, "states {completed}"},
		{"a fire time that fired twice", `insert into pgmill.event (type, target, data) select 'schedule.x', 'x', '{"at": "2026-01-01T00:00:00Z"}' from generate_series(1, 2)`, "has 2 ticks"},
		{"a schedule that sleeps before its tick", `insert into pgmill.event (id, type, target) values (999999, 'schedule.test.one', 't'); insert into pgmill.schedule (name, cron, zone, missed, max_missed, overlap, last_event) values ('test.one', '@daily', '', 'skip', 1, 'skip', 999999); update pgmill.subscription set dormant = true`, "event 999999 is not done"},
		{"a dead letter that is missing", `insert into pgmill.job (id, topic, state, finished_at, trace_id) values ('j1', 'job.x', 'FAILED', now(), 't')`, "job j1 is FAILED, its dead letter missing"},
		{"one of a job that succeeded", `insert into pgmill.job (id, topic, state, finished_at, trace_id) values ('j1', 'job.x', 'SUCCEEDED', now(), 't'); insert into pgmill.dead_letter (job, scope, topic, state, reason, attempts) values ('j1', 'install', 'job.x', 'FAILED', 'x', 1)`, "job j1 is SUCCEEDED, its dead letter FAILED"},
		{"a parked event without its key", `insert into pgmill.parked_event (subscription, shard, key, pos, event_id, reason, attempts) values ('test.one', 0, 'k', 1, 1, 'x', 1)`, "key k"},
	}
	dsn := platformtest.DSN(t)
	db := platformtest.Pool(t, dsn)
	s := platform.Subscription{Name: "test.one", Events: []string{"none"}, Owners: platform.OwnedBy("test"), Handle: func(context.Context, pgx.Tx, platform.Event) error { return nil }}
	platformtest.Stop(t, platformtest.Host(t, dsn, s))
	const mend = `truncate pgmill.event, pgmill.log, pgmill.step, pgmill.river_job, pgmill.job, pgmill.dead_letter, pgmill.parked_event, pgmill.cursor;
		insert into pgmill.step (k, base, last, after_id, cluster) select 0, pg_current_snapshot(), 0, 0, system_identifier from pg_control_system();
		insert into pgmill.cursor values ('test.one', 0, 0, 0);
		update pgmill.shard set failing_pos = null;
		delete from pgmill.schedule; update pgmill.subscription set dormant = false`
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { // in turn: they share the database
			platformtest.Emit(t, db, platform.NewEvent{Type: "a", Target: "b"})
			platformtest.Invariants(t, db)
			if _, err := db.Exec(t.Context(), tt.sql); err != nil {
				t.Fatal(err)
			}
			said := failing(func(fake *platformtest.T) { platformtest.Invariants(fake, db) })
			if !strings.Contains(said, tt.want) {
				t.Errorf("said %q, want %q in it", said, tt.want)
			}
			if _, err := db.Exec(t.Context(), mend); err != nil {
				t.Fatal(err)
			}
		})
	}
}
