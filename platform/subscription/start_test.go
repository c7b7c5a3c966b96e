package subscription_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/host"
	"github.com/pgmill/pgmill/platform/platformtest"
)

func TestWhereASubscriptionStarts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.emit("old1", "old2")
	open, err := w.db.Begin(t.Context()) // begun before, committed after
	if err != nil {
		t.Fatal(err)
	}
	if _, err := platform.Emit(t.Context(), open, platform.NewEvent{Type: "t.x", Target: "open"}); err != nil {
		t.Fatal(err)
	}
	zero, now := w.sub("test.zero", nil), w.sub("test.now", nil)
	now.From = platform.FromNow
	now.Handle = func(ctx context.Context, tx pgx.Tx, e platform.Event) error {
		e.Target = "now-" + e.Target
		return effect(ctx, tx, e)
	}
	h := w.host(zero, now)
	if err := open.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.emit("new")
	w.caughtUp("test.zero")
	w.caughtUp("test.now")
	want := []string{"old1", "old2", "open", "new", "now-open", "now-new"}
	w.once(want...)

	// What happens while no host is there waits; a second declaration moves nothing.
	platformtest.Stop(t, h)
	w.emit("missed")
	w.host(zero, now)
	w.caughtUp("test.zero")
	w.caughtUp("test.now")
	w.once(append(slices.Clone(want), "missed", "now-missed")...)
}

// N40: a subscription whose owner matrix is not complete does not run, and says so;
// others do, and an amended declaration starts it.
func TestIncompleteOwnerMatrixDoesNotRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.emit("e1")
	bad, good := w.sub("test.bad", nil), w.sub("test.good", nil)
	bad.Owners.Evidence = ""
	h := w.host(bad, good)
	w.caughtUp("test.good")
	if got := w.list("select concat_ws('|', state, reason, blocked_by, lag_events) from mill.subscriptions where name = 'test.bad'"); got != "paused|owner_matrix_incomplete|owner_matrix_incomplete|1" {
		t.Errorf("mill.subscriptions: %s", got)
	}
	if got := w.list("select concat_ws('|', id, reason) from mill.why_not_running"); got != "test.bad/0|owner_matrix_incomplete" {
		t.Errorf("mill.why_not_running: %s", got)
	}
	if got := w.list("select array_to_string(reasons, ',') from mill.health where component = 'subscriptions'"); got != "owner_matrix_incomplete" {
		t.Errorf("mill.health: %s", got)
	}
	w.once("e1")
	platformtest.Stop(t, h)
	bad.Owners = platform.OwnedBy("test")
	w.host(bad)
	w.caughtUp("test.bad")
	w.once("e1", "e1")
}

func TestHostWithNothingThatRunsStartsAllTheSame(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bad := w.sub("test.bad", nil)
	bad.Owners = platform.Owners{}
	w.host(bad)
	w.wait("select reason = 'owner_matrix_incomplete' from mill.subscriptions")
}

// F35, N31: a claim for a function that no live host has waits for one and says so; a
// host without the function neither takes nor drops it.
func TestF35FunctionWithoutALiveHostWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one, two := w.sub("test.one", nil), w.sub("test.two", nil)
	both := w.host(one, two)
	w.emit("e1")
	w.caughtUp("test.two")
	w.host(one)
	platformtest.Stop(t, both)
	// A claim that was made before the host went.
	w.exec(`insert into pgmill.river_job (args, kind, queue, max_attempts, unique_key, unique_states)
		values ('{"shard": 0, "subscription": "test.two"}', 'subscription:test.two', 'subscription', 1, pgmill.claim_key('test.two', 0), b'01000001')
		on conflict do nothing`)
	w.emit(numbered(20)[1:]...)
	w.caughtUp("test.one")
	w.wait("select blocked_by = 'no_live_host' and lag_events = 19 and attempts = 0 from mill.subscriptions where name = 'test.two'")
	if got := w.list("select concat_ws('|', id, reason, detail) from mill.why_not_running"); got != "test.two/0|no_live_host|19 events wait: no live host has this function" {
		t.Errorf("mill.why_not_running: %s", got)
	}
	if got := w.list("select concat_ws('|', state, attempt) from pgmill.river_job where kind = 'subscription:test.two'"); got != "available|0" {
		t.Errorf("its claim: %s", got)
	}
	w.host(two)
	w.caughtUp("test.two")
	w.once(append(numbered(20), numbered(20)...)...)
}

// The shard count is data: the row's holds, and the code's is only the first.
func TestShardCountIsData(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.sub("test.one", nil)
	s.Shards = 3
	platformtest.Stop(t, w.host(s))
	s.Shards = 1
	w.host(s)
	w.emit(numbered(30)...)
	w.caughtUp("test.one")
	w.once(numbered(30)...)
	if got := ask[int](w, "select count(*) from mill.subscriptions where position = 30"); got != 3 {
		t.Errorf("%d shards at the head; want 3", got)
	}
}

// N2: a bell makes the claims of all shards that the row has, also where the code
// says fewer and one of them is held: nothing waits for the poll.
func TestNewsReachShardsBeyondTheCodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	started, goOn := make(chan struct{}), make(chan struct{})
	s := w.sub("test.one", func(_ context.Context, _ pgx.Tx, e platform.Event) error {
		if e.Target == "slow" {
			close(started)
			<-goOn
		}
		return nil
	})
	s.Shards = 8
	platformtest.Stop(t, w.host(s))
	s.Shards = 1
	platformtest.HostWith(t, &host.Worker{Database: w.dsn, Poll: time.Hour}, s)
	ring := func() { w.exec("select pg_notify('pgmill', '')") } // no poll, so nobody armed the emitters' own
	w.emit("slow")
	ring()
	<-started
	w.emit(numbered(30)...)
	ring()
	w.wait(`select count(*) = (select count(*) from pgmill.event e where e.target <> 'slow'
		and hashtext(e.target) & 7 <> hashtext('slow') & 7) from effect`)
	close(goOn)
	w.wait("select count(*) = 31 from effect")
}

func TestOrderOfAKeyAndOfATarget(t *testing.T) {
	t.Parallel()
	for _, by := range []platform.OrderBy{platform.ByKey, platform.ByTarget} {
		t.Run(string(by), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s := w.sub("test.one", nil)
			s.Key, s.Shards, s.Batch = by, 5, 7
			w.host(s)
			w.host(s) // two hosts share the shards
			for r := range 12 {
				var events []platform.NewEvent
				for k := range 10 {
					events = append(events, platform.NewEvent{Type: "t.x", Target: "t" + string(rune('a'+(k+r)%10)), Key: "k" + string(rune('a'+k))})
				}
				platformtest.Emit(t, w.db, events...)
			}
			w.caughtUp("test.one")
			if got := ask[int](w, "select count(*) from effect"); got != 120 {
				t.Errorf("%d effects; want 120", got)
			}
			of := map[platform.OrderBy]string{platform.ByKey: "key", platform.ByTarget: "target"}[by]
			if got := ask[int](w, "select count(*) from (select pos, lag(pos) over (partition by "+of+" order by n) as before from effect) x where before > pos"); got != 0 {
				t.Errorf("%d events came after a later one of the same %s", got, of)
			}
		})
	}
}
