package subscription_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/host"
	"github.com/pgmill/pgmill/platform/platformtest"
)

// The number of shards changes under way, up and down, while events come and two
// hosts work: each event has its effect once, and those of a key in their order.
func TestReshardKeepsEachKeysOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.sub("test.one", nil)
	s.Batch = 5
	for range 2 {
		platformtest.HostWith(t, &host.Worker{Database: w.dsn, Poll: 50 * time.Millisecond, LeaseTTL: 5 * time.Second}, s)
	}
	sent := 0
	send := func(n int) {
		t.Helper()
		w.exec("select mill.emit('t.x', 'k' || g % 17, data => jsonb_build_object('no', $1::int + g)) from generate_series(1, $2::int) g", sent, n)
		sent += n
	}
	for _, shards := range []int{3, 8, 2, 1} {
		send(200)
		w.exec("select mill.reshard_subscription('test.one', $1)", shards)
		send(100)
		w.wait("select count(*) = $1 and count(distinct shard) = $1 from mill.subscriptions", shards)
		send(50)
		w.caughtUp("test.one")
	}
	if got := ask[int](w, "select count(*) from effect"); got != sent {
		t.Errorf("%d effects of %d events", got, sent)
	}
	if got := ask[int](w, "select count(distinct event) from effect"); got != sent {
		t.Errorf("%d events had effects, of %d", got, sent)
	}
	if got := w.list("select target from (select target, pos < lag(pos) over (partition by target order by xid, n) as wrong from effect) x where wrong"); got != "" {
		t.Errorf("keys out of order: %s", got)
	}
	if got := w.list("select split_part(subject, ' from', 1) from mill.audit where action = 'subscription.resharded' order by at"); got != "test.one: 3 shards test.one: 8 shards test.one: 2 shards test.one: 1 shards" {
		t.Errorf("audit: %s", got)
	}
}

// A key that is parked goes to its new shard, and its later events with it.
func TestReshardTakesParkedKeysAlong(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bad := refusing(map[string]int{"e1": -1})
	s := w.sub("test.one", bad.refuse)
	s.MaxAttempts, s.OnPoison = 1, platform.Park
	w.emit("e1", "e2", "e1", "e3")
	w.host(s)
	w.caughtUp("test.one")
	w.exec("select mill.reshard_subscription('test.one', 4)")
	w.wait("select count(*) = 4 from mill.subscriptions")
	w.emit("e1", "e2")
	w.caughtUp("test.one")
	bad.set("e1", 0)
	w.exec("select mill.unpark('test.one')")
	w.wait("select count(*) = 0 from pgmill.parked_key")
	if got := w.list("select target from effect order by n"); got != "e2 e3 e2 e1 e1 e1" {
		t.Errorf("effects: %s", got)
	}
}

// A parked key that is replayed while the shards change is replayed first.
func TestReshardWaitsForAReplayOfAKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bad := refusing(map[string]int{"e1": -1})
	s := w.sub("test.one", bad.refuse)
	s.MaxAttempts, s.OnPoison = 1, platform.Park
	w.emit("e1", "e2")
	w.host(s)
	w.caughtUp("test.one")
	bad.set("e1", 0)
	w.exec("with u as materialized (select mill.unpark('test.one')) select mill.reshard_subscription('test.one', 3) from u")
	w.wait("select count(*) = 3 from mill.subscriptions")
	w.once("e1", "e2")
}

// What fails is in the way of a change, and is said to be; once it is resolved the
// change goes through by itself.
func TestReshardWaitsForWhatFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := refusing(map[string]int{"e2": -1})
	w.emit("e1", "e2", "e3")
	w.host(w.sub("test.one", f.refuse))
	w.failed("test.one", 2)
	w.exec("select mill.reshard_subscription('test.one', 2)")
	w.emit("e4")
	w.failed("test.one", 2)
	if got := w.list("select distinct blocked_by from mill.subscriptions"); got != "event at 2" {
		t.Errorf("blocked by %q", got)
	}
	f.set("e2", 0)
	w.exec("select mill.resume_subscription('test.one')")
	w.wait("select count(*) = 2 from mill.subscriptions")
	w.caughtUp("test.one")
	w.once("e1", "e2", "e3", "e4")
}

// N45: a replay starts at a position or a time, goes to the end, and repeats nothing
// before.
func TestReplayStartsWhereItIsTold(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, from, want string }{
		{"from a position", "'3'", "e3 e4"},
		{"from a time", "(select positioned_at::text from mill.events where pos = 2)", "e2 e3 e4"},
		{"from the first", "'zero'", "e1 e2 e3 e4"},
		{"from a time to come", "(now() + interval '1 hour')::text", ""},
		{"from a position to come", "'1000'", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s := w.sub("test.one", nil)
			s.Replayable = true
			w.host(s)
			for n := range 4 { // each has a time of its own
				w.emit(fmt.Sprintf("e%d", n+1))
				w.caughtUp("test.one")
			}
			w.exec("truncate effect")
			w.exec("select mill.move_subscription('test.one', " + tt.from + ")")
			w.emit("e5")
			w.wait("select exists (select from effect where target = 'e5')")
			w.caughtUp("test.one")
			want := "e5"
			if tt.want != "" {
				want = tt.want + " e5"
			}
			if got := w.list("select target from effect order by n"); got != want {
				t.Errorf("effects: %s; want %s", got, want)
			}
		})
	}
}

// A replay goes back only: it skips nothing that waits or is parked.
func TestReplayNeverSkips(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.parking(refusing(map[string]int{"e2": 1}))
	s.Replayable = true
	w.host(s)
	w.refused("MI409", "select mill.replay_subscription('test.one', 'zero')") // nothing is handled yet
	w.emit(numbered(4)...)
	w.caughtUp("test.one")
	w.exec("select mill.pause_subscription('test.one')")
	w.emit("e5", "e6")
	w.wait("select head = 6 from mill.subscriptions")
	for _, ahead := range []string{"'now'", "'1000'", "(now() + interval '1 hour')::text", "'6'", "'5'", "'3'"} { // e2 is parked
		w.refused("MI409", "select mill.replay_subscription('test.one', "+ahead+")")
	}
	if got := w.list("select concat_ws('|', s.position, p.pos) from mill.subscriptions s, mill.parked_events p"); got != "4|2" {
		t.Errorf("position and parked event are %s after what was refused, want 4|2", got)
	}
	w.exec("select mill.replay_subscription('test.one', '2', 'a new column')")
	w.audited("subscription.move|test.one@1|a new column")
	w.exec("select mill.resume_subscription('test.one')")
	w.caughtUp("test.one")
	w.once("e1", "e2", "e3", "e3", "e4", "e4", "e5", "e6")
}

// A replay goes on where it was when the host that did it is gone.
func TestReplayOutlivesItsHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	entered, leave := make(chan struct{}, 100), make(chan struct{})
	var block atomic.Bool
	s := w.sub("test.one", func(ctx context.Context, _ pgx.Tx, e platform.Event) error {
		if block.Load() && e.Target == "e2" {
			entered <- struct{}{}
			select {
			case <-leave:
			case <-ctx.Done():
			}
			return ctx.Err()
		}
		return nil
	})
	s.Replayable, s.Batch = true, 1
	w.emit("e1", "e2", "e3")
	h := w.host(s)
	w.caughtUp("test.one")
	w.exec("truncate effect")
	block.Store(true)
	w.exec("select mill.move_subscription('test.one', 'zero')")
	<-entered
	platformtest.Stop(t, h)
	block.Store(false)
	close(leave)
	w.host(s)
	w.caughtUp("test.one")
	w.once("e1", "e2", "e3")
}
