package subscription_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/host"
	"github.com/pgmill/pgmill/platform/platformtest"
)

func TestBatchIsOneTransaction(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.emit(numbered(10)...)
	w.host(w.sub("test.one", nil))
	w.caughtUp("test.one")
	w.once(numbered(10)...)
	if got := ask[int](w, "select count(distinct xid) from effect"); got != 1 {
		t.Errorf("ten events took %d transactions; want 1", got)
	}
}

// DESIGN 5: optimistic; on a failure the prefix, then one event a transaction until
// past the failing one. After it, a batch again.
func TestBatchFailsThenItsPrefixThenTheFailingEventAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.emit(numbered(10)...)
	f := refusing(map[string]int{"e5": 2})
	w.host(w.sub("test.one", f.refuse))
	w.failed("test.one", 2)
	if got, want := w.noted(), "e1 e2 e3 e4 e5 e1 e2 e3 e4 e5"; got != want {
		t.Errorf("calls until the event is written down:\n %s\nwant\n %s", got, want)
	}
	w.once(numbered(4)...)
	w.due("test.one")
	w.caughtUp("test.one")
	if got, want := w.noted(), "e1 e2 e3 e4 e5 e1 e2 e3 e4 e5 e5 e6 e7 e8 e9 e10"; got != want {
		t.Errorf("calls:\n %s\nwant\n %s", got, want)
	}
	w.once(numbered(10)...)
	if got := w.list("select count(*)::text from effect group by xid order by min(pos)"); got != "4 1 5" {
		t.Errorf("events a transaction: %s; want 4 1 5", got)
	}
}

func TestBatchOfOneCallForAll(t *testing.T) {
	t.Parallel()
	poison := func(es []platform.Event) int {
		return slices.IndexFunc(es, func(e platform.Event) bool { return e.Target == "e4" })
	}
	tests := []struct {
		name   string
		err    func(es []platform.Event, at int) error
		calls  string // sizes until the event is written down
		tries  int
		reason string
	}{
		{name: "BatchError saves the search", calls: "10 3 1", tries: 2, reason: "handler_error",
			err: func(_ []platform.Event, at int) error {
				return &platform.BatchError{Index: at, Err: errors.New("bad")}
			}},
		{name: "a wrapped BatchError does as well, and its reason is kept", calls: "10 3 1", tries: 2, reason: "stock.gone",
			err: func(_ []platform.Event, at int) error {
				return fmt.Errorf("while: %w", &platform.BatchError{Index: at, Err: platform.Because("stock.gone", nil)})
			}},
		{name: "an error without an index is searched one by one", calls: "10 1 1 1 1", tries: 1, reason: "handler_error",
			err: func([]platform.Event, int) error { return errors.New("bad") }},
		{name: "so is one with an index outside the batch, whose reason says so", calls: "10 1 1 1 1", tries: 1, reason: "bad_batch",
			err: func(es []platform.Event, _ int) error {
				return &platform.BatchError{Index: len(es), Err: errors.New("bad")}
			}},
		{name: "and one with a negative index", calls: "10 1 1 1 1", tries: 1, reason: "bad_batch",
			err: func(es []platform.Event, _ int) error {
				return &platform.BatchError{Index: -1, Err: errors.New("bad")}
			}},
		{name: "a wrong index costs a search, no event", calls: "10 9 1 1 1 1", tries: 1, reason: "handler_error",
			err: func(es []platform.Event, _ int) error {
				return &platform.BatchError{Index: len(es) - 1, Err: errors.New("bad")}
			}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.emit(numbered(10)...)
			bad := refusing(map[string]int{"e4": -1})
			w.host(w.batchSub("test.one", func(_ context.Context, _ pgx.Tx, es []platform.Event) error {
				if at := poison(es); at >= 0 && bad.refuse(context.TODO(), nil, es[at]) != nil {
					return tt.err(es, at)
				}
				return nil
			}))
			w.failed("test.one", tt.tries)
			if got := w.noted(); got != tt.calls {
				t.Errorf("batches until the event is written down: %s; want %s", got, tt.calls)
			}
			if got := w.list("select reason from mill.subscriptions"); got != tt.reason {
				t.Errorf("reason = %s; want %s", got, tt.reason)
			}
			w.once(numbered(3)...)
			bad.set("e4", 0)
			w.due("test.one")
			w.caughtUp("test.one")
			w.once(numbered(10)...)
		})
	}
}

// F08: what a handler does to its slice must not move the cursor out of order.
func TestBatchMayBeSortedByItsHandler(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		err  func(at int) error
	}{
		{"and fail without an index", func(int) error { return errors.New("bad") }},
		{"and fail with one", func(at int) error { return &platform.BatchError{Index: at, Err: errors.New("bad")} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.emit(numbered(9)...)
			bad := refusing(map[string]int{"e3": -1})
			w.host(w.batchSub("test.one", func(_ context.Context, _ pgx.Tx, es []platform.Event) error {
				slices.Reverse(es)
				if at := slices.IndexFunc(es, func(e platform.Event) bool { return e.Target == "e3" }); at >= 0 && bad.refuse(context.TODO(), nil, es[at]) != nil {
					return tt.err(at)
				}
				return nil
			}))
			w.wait("select state = 'retrying' from mill.subscriptions")
			if got := ask[int](w, "select position from mill.subscriptions"); got != 2 {
				t.Errorf("the cursor is at %d; want 2, before the failing event", got)
			}
			w.once("e1", "e2")
			bad.set("e3", 0)
			w.due("test.one")
			w.caughtUp("test.one")
			w.once(numbered(9)...)
		})
	}
}

// What the handler does with its transaction, on the third of five events.
func TestHandlerAndItsTransaction(t *testing.T) {
	// not in parallel: a pooler opens its 64 connections one by one
	tests := []struct {
		name   string
		handle func(ctx context.Context, tx pgx.Tx) error
		reason string // "" means that all goes well
	}{
		{name: "a savepoint keeps what is before it", handle: func(ctx context.Context, tx pgx.Tx) error {
			sp, err := tx.Begin(ctx)
			if err != nil {
				return err
			}
			if _, err := sp.Exec(ctx, "select 1/0"); err == nil {
				return errors.New("no error")
			}
			return sp.Rollback(ctx)
		}},
		{name: "a savepoint that goes well is kept, nested ones too", handle: func(ctx context.Context, tx pgx.Tx) error {
			return pgx.BeginFunc(ctx, tx, func(sp pgx.Tx) error {
				return pgx.BeginFunc(ctx, sp, func(sp pgx.Tx) error {
					_, err := sp.Exec(ctx, "insert into effect (target) values ('inner')")
					return err
				})
			})
		}},
		{name: "Commit is refused", reason: "handler_error", handle: func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) }},
		{name: "Rollback is refused", reason: "handler_error", handle: func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) }},
		{name: "a refused Commit and Rollback change nothing", handle: func(ctx context.Context, tx pgx.Tx) error {
			if tx.Commit(ctx) == nil || tx.Rollback(ctx) == nil {
				return errors.New("it was allowed")
			}
			return nil
		}},
		{name: "a rollback by statement is a failure", reason: "handler_error", handle: func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "rollback")
			return err
		}},
		{name: "a swallowed failure of a statement is a failure", reason: "handler_error", handle: func(ctx context.Context, tx pgx.Tx) error {
			_, _ = tx.Exec(ctx, "select 1/0")
			return nil
		}},
		{name: "a savepoint left aborted is a failure", reason: "handler_error", handle: func(ctx context.Context, tx pgx.Tx) error {
			sp, err := tx.Begin(ctx)
			if err != nil {
				return err
			}
			_, _ = sp.Exec(ctx, "select 1/0")
			return nil
		}},
		{name: "rows left open are a failure", reason: "handler_error", handle: func(ctx context.Context, tx pgx.Tx) error {
			rows, err := tx.Query(ctx, "select generate_series(1, 100000)")
			if err != nil {
				return err
			}
			rows.Next()
			return nil
		}},
		{name: "a deferred constraint that fails at the commit is a failure", reason: "commit_failed", handle: func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "insert into late values (1), (1)")
			return err
		}},
		{name: "a panic is a failure", reason: "panic", handle: func(context.Context, pgx.Tx) error { panic("boo") }},
		{name: "a nil dereference is one", reason: "panic", handle: func(context.Context, pgx.Tx) error {
			var p *int
			*p = 1
			return nil
		}},
		{name: "waiting past the timeout is a failure", reason: "timeout", handle: func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "select pg_sleep(30)")
			return err
		}},
		{name: "so is a success after it", reason: "timeout", handle: func(ctx context.Context, tx pgx.Tx) error {
			<-ctx.Done()
			return nil
		}},
		{name: "a context of the handler's own that ends is a failure", reason: "handler_error", handle: func(ctx context.Context, tx pgx.Tx) error {
			ctx, cancel := context.WithTimeout(ctx, time.Millisecond)
			defer cancel()
			_, err := tx.Exec(ctx, "select pg_sleep(30)")
			return err
		}},
		{name: "a handler that ends its own session fails, sooner or later", reason: "handler_error", handle: func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "select pg_terminate_backend(pg_backend_pid())")
			return err
		}},
	}
	w := newWorld(t) // one for all: each case is a subscription with event types of its own
	w.exec("create table late (n int unique deferrable initially deferred)")
	bad := refusing(map[string]int{})
	var subs []platform.Subscription
	var names []string
	for i, tt := range tests {
		for _, kind := range []string{"handle", "batch"} {
			name := fmt.Sprintf("test.%s%d", kind, i)
			poison := name + ".e3"
			bad.set(poison, -1)
			strange := func(ctx context.Context, tx pgx.Tx, e platform.Event) error {
				if bad.refuse(ctx, tx, e) == nil {
					return nil
				}
				return tt.handle(ctx, tx)
			}
			s := w.sub(name, strange)
			if kind == "batch" {
				s = w.batchSub(name, func(ctx context.Context, tx pgx.Tx, es []platform.Event) error {
					for _, e := range es {
						if err := strange(ctx, tx, e); err != nil {
							return err
						}
					}
					return nil
				})
			}
			s.Events, s.Timeout = []string{name}, 1500*time.Millisecond
			subs, names = append(subs, s), append(names, name)
			var events []platform.NewEvent
			for n := range 5 {
				events = append(events, platform.NewEvent{Type: name, Target: fmt.Sprintf("%s.e%d", name, n+1)})
			}
			platformtest.Emit(t, w.db, events...)
		}
	}
	platformtest.HostWith(t, &host.Worker{Database: w.dsn, Poll: 50 * time.Millisecond, MaxConns: 2 * len(tests)}, subs...)
	for i, name := range names {
		tt := tests[i/2]
		t.Run(tt.name+" "+name, func(t *testing.T) { // in turn: they share the world
			of := "select split_part(target, '.', 3) from effect where type = $1 and target <> 'inner' order by n"
			if tt.reason != "" {
				platformtest.WaitFor(t, w.db, "select state = 'retrying' and attempts > 0 and reason = $2 from mill.subscriptions where name = $1", name, tt.reason)
				if got := w.list(of, name); got != "e1 e2" {
					t.Errorf("effects before the failing event: %s; want e1 e2", got)
				}
				bad.set(name+".e3", 0)
				w.due(name)
			}
			platformtest.WaitFor(t, w.db, "select position >= (select max(l.pos) from pgmill.log l where l.type = $1) from mill.subscriptions where name = $1", name)
			if got := w.list(of, name); got != "e1 e2 e3 e4 e5" {
				t.Errorf("effects: %s; want e1 to e5 once each", got)
			}
		})
	}
}

// N2, DESIGN 5: what a handler emits is committed with the cursor, or not at all.
func TestEventsOfAHandlerCommitWithItsEffect(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.emit(numbered(3)...)
	bad := refusing(map[string]int{"e2": 2})
	first := w.sub("test.first", func(ctx context.Context, tx pgx.Tx, e platform.Event) error {
		if e.Type == "t.x" {
			if _, err := platform.Emit(ctx, tx, platform.NewEvent{Type: "u.x", Target: "of-" + e.Target}); err != nil {
				return err
			}
		}
		return bad.refuse(ctx, tx, e)
	})
	second := w.sub("test.second", nil)
	second.Events = []string{"u.*"}
	w.host(first, second)
	w.failed("test.first", 2)
	if got := w.list("select target from mill.events where type = 'u.x'"); got != "of-e1" {
		t.Errorf("emitted while e2 fails: %s; want of-e1", got)
	}
	w.due("test.first")
	w.wait("select count(*) = 6 from effect")
	w.caughtUp("test.second")
	w.once("e1", "e2", "e3", "of-e1", "of-e2", "of-e3")
}

// A batch whose events are slow is settled after a third of the timeout.
func TestSlowBatchIsSettledEarly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.emit(numbered(30)...)
	s := w.sub("test.one", func(ctx context.Context, tx pgx.Tx, _ platform.Event) error {
		_, err := tx.Exec(ctx, "select pg_sleep(0.1)")
		return err
	})
	s.Timeout = 1500 * time.Millisecond
	w.host(s)
	w.caughtUp("test.one")
	w.once(numbered(30)...)
	if got := ask[int](w, "select count(distinct xid) from effect"); got < 3 || got > 25 {
		t.Errorf("30 events of 0.1 s under a timeout of 1.5 s took %d transactions; want a few each", got)
	}
	if got := w.noted(); strings.Count(got, "e17 ")+strings.Count(got, "e17") > 2 {
		t.Errorf("events ran more than once: %s", got)
	}
}

// A prefix that is slower when it runs again is settled early, too, and what is left
// of it comes before the failing event.
func TestPrefixThatIsSettledEarlyLosesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.emit(numbered(6)...)
	slow := false
	s := w.sub("test.one", func(ctx context.Context, tx pgx.Tx, e platform.Event) error {
		switch {
		case slow:
			_, err := tx.Exec(ctx, "select pg_sleep(0.6)")
			return err
		case e.Target == "e5":
			slow = true
			return errors.New("from now on slow")
		}
		return nil
	})
	s.Timeout = 3 * time.Second
	w.host(s)
	w.wait("select position = 6 from mill.subscriptions")
	w.once(numbered(6)...)
}

// A batch that fails without saying at which event, and whose events then go well one
// by one, is told of in one line by its reason only, however often it happens.
func TestBatchFailureThatNobodyOwnsIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.batchSub("test.one", func(_ context.Context, _ pgx.Tx, es []platform.Event) error {
		if len(es) > 1 {
			return platform.Because("test.together", errors.New("C4NARY"))
		}
		return nil
	})
	s.Batch = 5
	w.emit(numbered(10)...)
	log := &lines{}
	platformtest.HostWith(t, &host.Worker{Database: w.dsn, Log: host.NewLogger(log, "json", nil)}, s)
	w.caughtUp("test.one")
	w.once(numbered(10)...)
	if got, want := w.noted(), "5 1 1 1 1 1 5 1 1 1 1 1"; got != want {
		t.Errorf("batches of %s; want %s", got, want)
	}
	if n := log.count("batch failed"); n != 1 || log.count(`"reason":"test.together"`) != 1 {
		t.Errorf("%d lines of failed batches; want one with the reason", n)
	}
	if log.count("C4NARY") > 0 {
		t.Errorf("the error's text is in the log")
	}
}

// A HandleBatch that takes too long for its batch gets smaller ones.
func TestBatchThatTimesOutIsMadeSmaller(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.emit(numbered(16)...)
	s := w.batchSub("test.one", func(ctx context.Context, tx pgx.Tx, es []platform.Event) error {
		_, err := tx.Exec(ctx, "select pg_sleep($1)", 0.15*float64(len(es)))
		return err
	})
	s.Timeout = time.Second
	w.host(s)
	w.caughtUp("test.one")
	w.once(numbered(16)...)
}

func TestSubscriptionThatMatchesNothingMovesItsCursor(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		first  int // events before the host starts
		second int // events after, once it is idle
	}{
		{"past a few that are there already", 100, 0},
		{"past a few that come", 0, 100},
		{"past more than a claim is derived for", 6000, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			flood := func(n int) {
				w.exec("select count(mill.emit('u.x', 'e' || g)) from generate_series(1, $1::int) g", n)
			}
			flood(tt.first)
			s := w.sub("test.none", nil)
			s.Events = []string{"none.at_all", "t.never.*"}
			w.host(s)
			flood(tt.second)
			w.wait("select position = $1 and lag_events = 0 and lag_seconds = 0 from mill.subscriptions", tt.first+tt.second)
			if got := w.noted(); got != "" {
				t.Errorf("the handler was called with %s", got)
			}
			platformtest.Emit(t, w.db, platform.NewEvent{Type: "none.at_all", Target: "e1"})
			w.caughtUp("test.none")
			w.once("e1")
		})
	}
}

// A _ in a pattern is no wildcard, and * stands for at least one more segment.
func TestPatternsMatchTheSameInGoAndInSQL(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	types := []string{"a_b.c", "axb.c", "a_b", "a_b.c.d", "a_bc", "z"}
	var events []platform.NewEvent
	for _, typ := range types {
		events = append(events, platform.NewEvent{Type: typ, Target: typ})
	}
	platformtest.Emit(t, w.db, events...)
	s := w.sub("test.some", nil)
	s.Events = []string{"a_b.*", "z"}
	w.host(s)
	w.caughtUp("test.some")
	var want []string
	for _, typ := range types {
		if s.Matches(typ) {
			want = append(want, typ)
		}
	}
	w.once(want...)
	if !slices.Equal(want, []string{"a_b.c", "a_b.c.d", "z"}) {
		t.Errorf("Go matches %v", want)
	}
}
