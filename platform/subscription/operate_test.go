package subscription_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/platformtest"
)

// refused checks that a statement fails with an SQLSTATE.
func (w *world) refused(state, sql string) {
	w.Helper()
	_, err := w.db.Exec(w.Context(), sql)
	var pe *pgconn.PgError
	if !errors.As(err, &pe) || pe.Code != state {
		w.Errorf("%s: %v; want SQLSTATE %s", sql, err, state)
	}
}

// audited is the audit's last row.
func (w *world) audited(want string) {
	w.Helper()
	if got := w.list("select concat_ws('|', actor, action, subject, reason) from mill.audit order by at desc limit 1"); got != "db:"+ask[string](w, "select session_user::text")+"|"+want {
		w.Errorf("audit: %s; want db:… %s", got, want)
	}
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host(w.sub("test.one", nil), w.sub("test.two", nil))
	w.emit("e1")
	w.caughtUp("test.one")
	w.exec("select mill.pause_subscription('test.one', 'a migration')")
	w.audited("subscription.pause|test.one|a migration")
	w.emit("e2")
	w.caughtUp("test.two")
	w.wait("select instance is null from mill.subscriptions where name = 'test.one'")
	if got := w.list("select concat_ws('|', state, position, lag_events, reason, blocked_by) from mill.subscriptions where name = 'test.one'"); got != "paused|1|1|a migration|paused" {
		t.Errorf("mill.subscriptions: %s", got)
	}
	if got := w.list("select concat_ws('|', id, reason, detail) from mill.why_not_running"); got != "test.one/0|paused|1 events wait: host subscription resume" {
		t.Errorf("mill.why_not_running: %s", got)
	}
	w.exec("select mill.resume_subscription('test.one', 'done')")
	w.audited("subscription.resume|test.one|done")
	w.caughtUp("test.one")
	w.once("e1", "e1", "e2", "e2")
	w.refused("MI404", "select mill.pause_subscription('test.none')")
	w.refused("MI404", "select mill.resume_subscription('test.none')")
}

// A pause is seen before the next batch begins, also by a holder under load.
func TestPauseStopsABusyShardAfterItsBatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.sub("test.one", func(ctx context.Context, tx pgx.Tx, e platform.Event) error {
		if e.Target == "e3" { // while its own batch is under way
			_, err := w.db.Exec(ctx, "select mill.pause_subscription('test.one')")
			return err
		}
		return nil
	})
	s.Batch = 5
	w.emit(numbered(20)...)
	w.host(s)
	w.wait("select state = 'paused' and instance is null from mill.subscriptions")
	w.once(numbered(5)...)
	w.exec("select mill.resume_subscription('test.one')")
	w.caughtUp("test.one")
	w.once(numbered(20)...)
}

func TestResumeGivesFreshAttemptsNow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := refusing(map[string]int{"e1": 5})
	s := w.sub("test.one", f.refuse)
	s.MaxAttempts = 2
	w.emit("e1", "e2")
	w.host(s)
	w.wait("select state = 'held' and attempts = 2 from mill.subscriptions")
	w.exec("select mill.resume_subscription('test.one')")
	w.failed("test.one", 1) // third call: attempt 1 of two
	w.due("test.one")
	w.wait("select state = 'held' and attempts = 2 from mill.subscriptions")
	w.exec("select mill.resume_subscription('test.one')")
	w.failed("test.one", 1)
	w.due("test.one")
	w.caughtUp("test.one")
	w.once("e1", "e2")
}

func TestHoldParkAndDropOfAFailingEvent(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, sql, audit string
		state            string
		effects          []string
		then             string // afterwards, once the handler is mended
		all              []string
	}{
		{name: "hold stops the retries until resume", sql: "select mill.hold_subscription('test.one', 0, 'wait')", audit: "subscription.hold|test.one/0@2|wait",
			state: "held", effects: []string{"e1"}, then: "select mill.resume_subscription('test.one')", all: numbered(4)},
		{name: "park sets it aside until unpark", sql: "select mill.park_subscription('test.one', 0, 'later')", audit: "subscription.park|test.one/0@2|later",
			state: "degraded", effects: []string{"e1", "e3", "e4"}, then: "select mill.unpark('test.one', 'e2')", all: numbered(4)},
		{name: "drop skips it for good", sql: "select mill.drop_event('test.one', 0, null, 'no use')", audit: "event.drop|test.one/0@2|no use",
			state: "running", effects: []string{"e1", "e3", "e4"}, then: "select 1", all: []string{"e1", "e3", "e4"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			f := refusing(map[string]int{"e2": -1})
			w.emit(numbered(4)...)
			w.host(w.sub("test.one", f.refuse))
			w.failed("test.one", 2)
			w.exec(tt.sql)
			w.audited(tt.audit)
			w.wait("select state = $1 from mill.subscriptions", tt.state)
			if tt.state == "held" {
				w.due("test.one") // nothing is due: held by an operator has no next attempt
				w.wait("select state = 'held' and next_retry_at is null and instance is null from mill.subscriptions")
			} else {
				w.caughtUp("test.one")
			}
			w.once(tt.effects...)
			f.set("e2", 0)
			w.exec(tt.then)
			w.caughtUp("test.one")
			w.wait("select count(*) = $1 from effect", len(tt.all))
			w.wait("select state = 'running' from mill.subscriptions")
			w.once(tt.all...)
		})
	}
}

func TestOperationsRefuseWhatTheStateDoesNotAllow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.emit("e1")
	w.host(w.sub("test.one", nil))
	w.caughtUp("test.one")
	for _, what := range []string{"mill.hold_subscription('%s')", "mill.park_subscription('%s')", "mill.drop_event('%s')"} {
		w.refused("MI409", fmt.Sprintf("select "+what, "test.one"))
		w.refused("MI404", fmt.Sprintf("select "+what, "test.none"))
	}
	w.refused("MI404", "select mill.hold_subscription('test.one', 7)")
	for _, nowhere := range []string{"'back'", "'-1'", "''", "null", "'2026-13-01'", "'1e3'"} {
		w.refused("MI001", "select mill.move_subscription('test.one', "+nowhere+")")
		w.refused("MI001", "select mill.replay_subscription('test.one', "+nowhere+")")
	}
	w.refused("MI001", "select mill.reshard_subscription('test.one', 0)")
	w.refused("MI001", "select mill.reshard_subscription('test.one', null)")
	w.refused("MI404", "select mill.reshard_subscription('test.none', 2)")
	w.refused("MI404", "select mill.move_subscription('test.none', 'now')")
	w.refused("MI404", "select mill.replay_subscription('test.none', 'zero')")
	w.refused("MI409", "select mill.move_subscription('test.one', 'zero')") // not Replayable
	w.refused("MI409", "select mill.replay_subscription('test.one', 'zero')")
	if got := ask[int](w, "select count(*) from mill.audit"); got != 0 {
		t.Errorf("%d refused operations are in the audit", got)
	}
}

func TestMoveToNowSkipsWhatWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := refusing(map[string]int{"e2": -1})
	w.emit(numbered(4)...)
	w.host(w.sub("test.one", f.refuse))
	w.failed("test.one", 2)
	w.exec("select mill.move_subscription('test.one', 'now', 'too many')")
	w.audited("subscription.move|test.one@4|too many")
	w.wait("select state = 'running' and position = 4 and lag_events = 0 and attempts = 0 from mill.subscriptions")
	w.emit("e5")
	w.caughtUp("test.one")
	w.once("e1", "e5")
}

func TestMoveToZeroRepeatsEverythingIfReplayable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := refusing(map[string]int{"e2": 1})
	s := w.parking(f)
	s.Replayable, s.Shards = true, 3
	w.emit(numbered(6)...)
	w.host(s)
	w.caughtUp("test.one")
	w.once("e1", "e3", "e4", "e5", "e6")
	w.exec("select mill.move_subscription('test.one', 'zero', 'a new column')")
	w.audited("subscription.move|test.one@0|a new column")
	w.wait("select count(*) = 11 from effect")
	w.caughtUp("test.one")
	w.once("e1", "e1", "e2", "e3", "e3", "e4", "e4", "e5", "e5", "e6", "e6")
	if got := ask[int](w, "select count(*) from pgmill.parked_key"); got != 0 {
		t.Errorf("%d keys are still parked", got)
	}
}

// A busy subscription can be moved: the mover meets the holder at the cursor, one of
// them gives way, and neither says so to anybody.
func TestMoveOfABusySubscriptionNeverFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.sub("test.one", nil)
	s.Replayable, s.Batch = true, 1
	s.Handle = func(ctx context.Context, tx pgx.Tx, e platform.Event) error {
		_, err := tx.Exec(ctx, "select 1")
		return err
	}
	w.exec("select count(mill.emit('t.x', 'e' || g)) from generate_series(1, 5000) g")
	w.host(s)
	for i := range 60 {
		w.wait("select position >= 2 from mill.subscriptions")
		if _, err := w.db.Exec(t.Context(), "select mill.move_subscription('test.one', 'zero')"); err != nil {
			t.Fatalf("move %d: %v", i, err)
		}
	}
	w.exec("select mill.move_subscription('test.one', 'now')")
	w.caughtUp("test.one")
}

// An operator's open transaction on the rows of many shards stops these shards, and
// neither the lease nor the others.
func TestOperatorsOpenTransactionStopsNobodyElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := refusing(map[string]int{"bad": 2})
	s := w.sub("test.many", f.refuse)
	s.Shards = 12
	s.Handle = func(context.Context, pgx.Tx, platform.Event) error { return errors.New("no") }
	other := w.sub("test.other", nil)
	other.Events = []string{"u.*"}
	h := w.host(s, other)
	w.wait("select count(*) = 13 from mill.subscriptions")
	tx, err := w.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background()) //nolint:errcheck // the end of a test that failed
	if _, err := tx.Exec(t.Context(), "select mill.pause_subscription('test.many'); update pgmill.shard set version = version + 1 where subscription = 'test.many'"); err != nil {
		t.Fatal(err)
	}
	w.emit(numbered(60)...)
	w.wait("select count(*) >= 4 from pg_stat_activity where datname = current_database() and query like '%ShardLock%' and wait_event_type = 'Lock'")
	since := ask[string](w, "select since::text from pgmill.instance where id = $1", h.ID())
	for range 4 {
		renewed := ask[string](w, "select last_seen::text from pgmill.instance where id = $1", h.ID())
		w.wait("select last_seen > $2::timestamptz from mill.instances where id = $1", h.ID(), renewed)
		platformtest.Emit(t, w.db, platform.NewEvent{Type: "u.x", Target: "u1"})
		w.caughtUp("test.other")
	}
	if got := ask[string](w, "select since::text from pgmill.instance where id = $1", h.ID()); got != since {
		t.Errorf("the lease was broken: unbroken since %s, before %s", got, since)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.wait("select count(*) = 12 from mill.subscriptions where name = 'test.many' and state = 'retrying'")
}
