package subscription_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/platformtest"
)

// F08: a failure in a batch drops none of its neighbours. 100 events in 10
// transactions whose first ids run opposite to commit order; e37 fails three times;
// the cursor is never at or past the lowest unfinished position.
func TestF08FailureInABatchDropsNoNeighbour(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 8} {
		t.Run(fmt.Sprintf("%d shards", shards), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			targets := numbered(100)
			txs := make([]pgx.Tx, 10)
			for i := range txs {
				tx, err := w.db.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				txs[i] = tx
				for _, target := range targets[10*i : 10*i+10] {
					if _, err := platform.Emit(t.Context(), tx, platform.NewEvent{Type: "t.x", Target: target}); err != nil {
						t.Fatal(err)
					}
				}
			}
			f := refusing(map[string]int{"e37": 3})
			s := w.sub("test.one", f.refuse)
			s.Shards = shards
			w.host(s)
			for i := range txs { // opposite to the ids
				if err := txs[len(txs)-1-i].Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			w.wait("select count(*) = 100 from pgmill.log")

			for attempts := 2; attempts <= 3; attempts++ {
				w.failed("test.one", attempts)
				w.inOrder("test.one")
				w.due("test.one")
			}
			w.caughtUp("test.one")
			w.once(targets...)
			if calls := w.callsOf("e37"); calls != 4 {
				t.Errorf("e37 was tried %d times; want 4", calls)
			}
		})
	}
}

// inOrder checks that every shard's cursor is below its lowest unfinished event.
func (w *world) inOrder(name string) {
	w.Helper()
	if got := w.list(`
		select format('shard %s is at %s, %s is unfinished', s.shard, s.position, min(l.pos))
		from mill.subscriptions s
		join pgmill.subscription f on f.name = s.name
		join pgmill.log l on pgmill.wants(f.likes, f.shards, s.shard, f.order_by = 'key', l.type, l.key_hash, l.target_hash)
		where s.name = $1 and not exists (select from effect e where e.pos = l.pos)
		group by s.shard, s.position
		having s.position >= min(l.pos)`, name); got != "" {
		w.Error(got)
	}
}

// N36: the attempts, the reason and the time of the next one are in the row.
func TestAttemptsAreCountedAndTheNextIsInTheRow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.emit("e1")
	f := refusing(map[string]int{"e1": -1})
	s := w.sub("test.one", f.refuse)
	s.MaxAttempts = 4
	w.host(s)
	for attempts, wait := 2, 2.0; attempts <= 3; attempts, wait = attempts+1, 2*wait {
		w.failed("test.one", attempts)
		got := ask[float64](w, "select extract(epoch from next_retry_at - interval '1 hour' - failed_at)::float8 from pgmill.shard")
		if got < 0.9*wait || got > 1.1*wait {
			t.Errorf("after attempt %d the next is in %.3f s; want %v ± 10 %%", attempts, got, wait)
		}
		if got := w.list("select concat_ws('|', state, reason, blocked_by, lag_events) from mill.subscriptions"); got != "retrying|handler_error|event at 1|1" {
			t.Errorf("mill.subscriptions says %s", got)
		}
		if got := w.list("select concat_ws('|', kind, reason, split_part(detail, ',', 1)) from mill.why_not_running"); got != fmt.Sprintf("subscription|handler_error|attempt %d of the event at 1", attempts) {
			t.Errorf("mill.why_not_running says %s", got)
		}
		w.due("test.one")
	}
	w.wait("select state = 'held' and attempts = 4 from mill.subscriptions")
	if got := ask[float64](w, "select extract(epoch from next_retry_at - interval '1 hour' - failed_at)::float8 from pgmill.shard"); got < 270 || got > 330 {
		t.Errorf("a held event that failed by itself is looked at again in %.0f s; want 300 ± 10 %%", got)
	}
	if got := w.list("select status || array_to_string(reasons, ',') from mill.health where component = 'subscriptions'"); got != "degradedheld" {
		t.Errorf("mill.health says %s; want degraded, held", got)
	}
	w.once()
	f.set("e1", 0)
	w.due("test.one") // five minutes later
	w.caughtUp("test.one")
	w.wait("select state = 'running' and attempts = 0 and reason is null and next_retry_at is null from mill.subscriptions")
	w.once("e1")
}

func TestFailIsFinal(t *testing.T) {
	t.Parallel()
	decode := func(_ context.Context, _ pgx.Tx, e platform.Event) error {
		_, err := platform.Data[struct{ N int64 }](e)
		return err
	}
	tests := []struct {
		name   string
		refuse func(ctx context.Context, tx pgx.Tx, e platform.Event) error
		park   bool
		state  string
		reason string
	}{
		{name: "Fail holds at once, with its reason", state: "held", reason: "stock.gone",
			refuse: func(context.Context, pgx.Tx, platform.Event) error {
				return platform.Fail("stock.gone", errors.New("gone"))
			}},
		{name: "Fail parks at once", park: true, state: "degraded", reason: "stock.gone",
			refuse: func(context.Context, pgx.Tx, platform.Event) error { return platform.Fail("stock.gone", nil) }},
		{name: "F12: data that does not decode is final", park: true, state: "degraded", reason: "bad_data", refuse: decode},
		{name: "what is no reason is not stored", state: "held", reason: "bad_reason",
			refuse: func(context.Context, pgx.Tx, platform.Event) error {
				return platform.Fail("Straße postgres://u:p@h", nil)
			}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s := w.sub("test.one", func(ctx context.Context, tx pgx.Tx, e platform.Event) error {
				if e.Target != "bad" {
					return nil
				}
				return tt.refuse(ctx, tx, e)
			})
			if tt.park {
				s.OnPoison = platform.Park
			}
			platformtest.Emit(t, w.db, platform.NewEvent{Type: "t.x", Target: "good"}, platform.NewEvent{Type: "t.x", Target: "bad", Data: map[string]any{"N": "x"}},
				platform.NewEvent{Type: "t.x", Target: "after"})
			w.host(s)
			w.wait("select state = $1 from mill.subscriptions", tt.state)
			if got := w.callsOf("bad"); got != 1 {
				t.Errorf("tried %d times; want 1", got)
			}
			if tt.park {
				w.caughtUp("test.one")
				w.once("good", "after")
				if got := w.list("select concat_ws('|', key, pos, reason, attempts) from mill.parked_events"); got != "bad|2|"+tt.reason+"|1" {
					t.Errorf("parked %s", got)
				}
				return
			}
			w.once("good")
			if got := w.list("select concat_ws('|', reason, attempts, next_retry_at) from mill.subscriptions"); got != tt.reason+"|1" {
				t.Errorf("held with %s; want %s, one attempt and no next", got, tt.reason)
			}
		})
	}
}

func TestOneAttemptMeansOneCall(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.emit("e1", "e2")
	s := w.sub("test.one", refusing(map[string]int{"e2": -1}).refuse)
	s.MaxAttempts = 1
	w.host(s)
	w.failed("test.one", 1)
	w.wait("select state = 'held' from mill.subscriptions")
	if got := w.callsOf("e2"); got != 1 {
		t.Errorf("tried %d times; want 1", got)
	}
	w.once("e1")
}

// N35: no text of an error reaches a table; only reason codes do.
func TestN35ErrorTextIsStoredNowhere(t *testing.T) {
	t.Parallel()
	const canary = "canary-s3cret"
	kinds := map[string]func() error{
		"e1": func() error { return errors.New("dial postgres://u:" + canary + "@h/db") },
		"e2": func() error { panic(canary) },
		"e3": func() error { return platform.Because("stock.later", errors.New(canary)) },
		"e4": func() error { return platform.Fail(platform.Reason(canary), errors.New(canary)) },
		"e5": func() error { return &platform.BatchError{Index: 0, Err: errors.New(canary)} },
	}
	w := newWorld(t)
	s := w.sub("test.one", func(_ context.Context, _ pgx.Tx, e platform.Event) error { return kinds[e.Target]() })
	s.OnPoison, s.MaxAttempts = platform.Park, 1
	w.emit(numbered(5)...)
	w.host(s)
	w.wait("select count(*) = 5 from mill.parked_events")
	if got, want := w.list("select reason from mill.parked_events order by pos"), "handler_error panic stock.later bad_reason handler_error"; got != want {
		t.Errorf("reasons %s; want %s", got, want)
	}
	for table := range strings.FieldsSeq(w.list("select c.oid::regclass::text from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname in ('pgmill', 'mill') and c.relkind in ('r', 'p', 'v')")) {
		if got := ask[int](w, "select count(*) from "+table+" x where x::text like '%canary%'"); got > 0 {
			t.Errorf("%d rows of %s hold an error's text", got, table)
		}
	}
	if got := ask[int](w, "select count(*) from pgmill.shard where reason !~ '^[a-z0-9_.]{1,64}$'"); got > 0 {
		t.Error("a reason is no code")
	}
}

// A conflict with another transaction is nobody's failure: no attempt is burnt.
func TestConflictsAreTriedAgainWithoutAnAttempt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.emit(numbered(3)...)
	left := 4
	w.host(w.sub("test.one", func(ctx context.Context, tx pgx.Tx, e platform.Event) error {
		if e.Target == "e2" && left > 0 {
			left--
			_, err := tx.Exec(ctx, "do $$ begin raise exception using errcode = '40P01'; end $$")
			return err
		}
		return nil
	}))
	w.caughtUp("test.one")
	w.once(numbered(3)...)
	if got := w.list("select concat_ws('|', attempts, reason) from mill.subscriptions"); got != "0" {
		t.Errorf("conflicts left %s", got)
	}
}

func TestConflictWithoutEndIsAFailure(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.emit(numbered(3)...)
	w.host(w.sub("test.one", func(ctx context.Context, tx pgx.Tx, e platform.Event) error {
		if e.Target != "e2" {
			return nil
		}
		_, err := tx.Exec(ctx, "do $$ begin raise exception using errcode = '40P01'; end $$")
		return err
	}))
	w.wait("select state = 'retrying' and reason = 'conflict' from mill.subscriptions")
	w.once("e1")
}
