package subscription_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/platformtest"
)

// keyed emits one event for each key: the key, and as target key and number.
func (w *world) keyed(from int, keys ...string) {
	w.Helper()
	events := make([]platform.NewEvent, len(keys))
	for i, k := range keys {
		events[i] = platform.NewEvent{Type: "t.x", Target: fmt.Sprintf("%s%d", k, from+i), Key: k}
	}
	platformtest.Emit(w.T, w.db, events...)
}

// parking is a subscription with one attempt that parks.
func (w *world) parking(f *faulty) platform.Subscription {
	s := w.sub("test.one", f.refuse)
	s.OnPoison, s.MaxAttempts = platform.Park, 1
	return s
}

// order is the order in which the events of a key were handled, by target.
func (w *world) order(key string) string {
	w.Helper()
	return w.list("select target from effect where key = $1 order by n", key)
}

// A parked event's key waits in the log; after unpark it comes in order, once.
func TestParkingKeepsTheSuccessorsOfTheKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := refusing(map[string]int{"a1": -1})
	w.host(w.parking(f))
	w.keyed(1, "a", "b", "a", "b", "a")
	w.caughtUp("test.one")
	w.once("b2", "b4")
	if got := w.list("select concat_ws('|', subscription, shard, key, pos, reason, attempts) from mill.parked_events"); got != "test.one|0|a|1|handler_error|1" {
		t.Errorf("parked: %s", got)
	}
	if got := w.list("select state from mill.subscriptions"); got != "degraded" {
		t.Errorf("state = %s; want degraded", got)
	}
	if got := w.list("select concat_ws('|', id, kind, reason) from mill.why_not_running"); got != "test.one/0@1|parked_event|handler_error" {
		t.Errorf("why_not_running: %s", got)
	}

	f.set("a1", 0)
	w.exec("select mill.unpark('test.one', 'a', 'mended')")
	w.keyed(6, "a", "b")
	w.wait("select count(*) = 7 from effect")
	w.wait("select count(*) = 0 from pgmill.parked_key")
	w.keyed(8, "a")
	w.wait("select count(*) = 8 from effect")
	w.once("a1", "b2", "a3", "b4", "a5", "a6", "b7", "a8")
	if got := w.order("a"); got != "a1 a3 a5 a6 a8" {
		t.Errorf("key a was handled as %s", got)
	}
	w.wait("select state = 'running' from mill.subscriptions")
	if got := w.list("select concat_ws('|', action, subject, reason) from mill.audit"); got != "event.unpark|test.one:a|mended" {
		t.Errorf("audit: %s", got)
	}
}

func TestUnparkedKeyThatFailsAgainIsParkedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := refusing(map[string]int{"a1": 1, "a3": -1})
	w.host(w.parking(f))
	w.keyed(1, "a", "b", "a", "a")
	w.caughtUp("test.one")
	w.exec("select mill.unpark('test.one', 'a')")
	w.wait("select count(*) = 1 from mill.parked_events where pos = 3")
	w.once("a1", "b2")
	f.set("a3", 0)
	w.exec("select mill.unpark('test.one')") // all keys
	w.wait("select count(*) = 0 from pgmill.parked_key")
	w.wait("select count(*) = 4 from effect")
	if got := w.order("a"); got != "a1 a3 a4" {
		t.Errorf("key a was handled as %s", got)
	}
}

func TestDroppedParkedEventIsSkippedAndItsSuccessorsComes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host(w.parking(refusing(map[string]int{"a1": -1})))
	w.keyed(1, "a", "b", "a")
	w.caughtUp("test.one")
	w.exec("select mill.drop_event('test.one', 0, 1, 'hopeless')")
	w.wait("select count(*) = 0 from pgmill.parked_key")
	w.wait("select count(*) = 2 from effect")
	w.once("b2", "a3")
	if got := w.list("select concat_ws('|', action, subject, reason) from mill.audit"); got != "event.drop|test.one/0@1|hopeless" {
		t.Errorf("audit: %s", got)
	}
	w.exec("select mill.unpark('test.one')") // nothing is parked; not an error
	w.refused("MI404", "select mill.unpark('test.one', 'a')")
	w.refused("MI404", "select mill.drop_event('test.one', 0, 1)")
	w.refused("MI404", "select mill.unpark('test.two')")
}

// At most 1,000 keys a shard; then the shard holds, and goes on when there is room.
func TestAThousandParkedKeysHoldTheShard(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := refusing(map[string]int{"late1": -1})
	s := w.parking(f)
	platformtest.Stop(t, w.host(s))
	w.exec(`insert into pgmill.parked_key (subscription, shard, key, key_hash, from_pos) select 'test.one', 0, 'k' || g, hashtext('k' || g), 0 from generate_series(1, 999) g`)
	w.keyed(1, "late", "x")
	w.host(s)
	w.caughtUp("test.one") // the thousandth has room
	f.set("more3", -1)
	w.keyed(3, "more", "y")
	w.wait("select state = 'held' and reason = 'handler_error' from mill.subscriptions")
	w.once("x2")
	w.refused("MI409", "select mill.park_subscription('test.one')")
	w.keyed(5, "late") // of a parked key: no new one

	w.exec("select mill.unpark('test.one', 'k7')")
	w.exec("select mill.resume_subscription('test.one')")
	w.wait("select count(*) = 1 from mill.parked_events where key = 'more'")
	w.wait("select count(*) = 2 from effect")
	w.caughtUp("test.one")
	w.once("x2", "y4")
}

// The scope is part of a key: one tenant's poison does not stop another's.
func TestParkingKeepsTenantsApart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host(w.parking(refusing(map[string]int{"a1": -1})))
	for i, scope := range []string{"org:acme", "org:umbrella", "install", "org:acme", "org:umbrella"} {
		platformtest.Emit(t, w.db, platform.NewEvent{Type: "t.x", Target: fmt.Sprintf("a%d", i+1), Key: "k", Scope: scope})
	}
	w.caughtUp("test.one")
	if got := w.list("select scope || ':' || target from effect order by n"); got != "org:umbrella:a2 install:a3 org:umbrella:a5" {
		t.Errorf("handled %s; want all but acme's", got)
	}
	if got := w.list("select scope || '/' || key from pgmill.parked_event"); got != "org:acme/org:acme k" {
		t.Errorf("parked %s", got)
	}
}

// By target, parking takes the target's later events aside, whatever their keys.
func TestParkingByTarget(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := refusing(map[string]int{"a": 1})
	s := w.parking(f)
	s.Key = platform.ByTarget
	w.host(s)
	for i, target := range []string{"a", "b", "a"} {
		platformtest.Emit(t, w.db, platform.NewEvent{Type: "t.x", Target: target, Key: fmt.Sprint("k", i)})
	}
	w.caughtUp("test.one")
	w.once("b")
	w.exec("select mill.unpark('test.one', 'a')")
	w.wait("select count(*) = 3 from effect")
	w.once("b", "a", "a")
	w.wait("select count(*) = 0 from pgmill.parked_key")
	if got := w.list("select key from effect where target = 'a' order by n"); got != "k0 k2" {
		t.Errorf("target a was handled as %s", got)
	}
}

// Each shard parks its own keys; order holds for each key over all of it.
func TestOrderOfEachKeyWithSeveralShardsAndParking(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const keys, rounds = 20, 15
	f := refusing(map[string]int{})
	name := func(k int) string { return string(rune('a' + k)) }
	for k := range keys {
		if k%5 == 0 {
			f.set(fmt.Sprintf("%s%d", name(k), 3), 1) // fails once, in round 3
		}
	}
	s := w.parking(f)
	s.Shards = 4
	w.host(s)
	for r := range rounds {
		all := make([]platform.NewEvent, keys)
		for k := range keys {
			all[k] = platform.NewEvent{Type: "t.x", Target: fmt.Sprintf("%s%d", name(k), r), Key: name(k)}
		}
		platformtest.Emit(t, w.db, all...)
		if r == 8 {
			w.exec("select mill.unpark('test.one')")
		}
	}
	w.wait("select count(*) = 0 or mill.unpark('test.one') is null from pgmill.parked_key")
	w.caughtUp("test.one")
	w.exec("select mill.unpark('test.one')")
	w.wait("select count(*) = $1 from effect", keys*rounds)
	w.wait("select count(*) = 0 from pgmill.parked_key")
	var want []string
	for r := range rounds {
		want = append(want, fmt.Sprint(r))
	}
	for k := range keys {
		got := strings.ReplaceAll(w.order(name(k)), name(k), "")
		if got != strings.Join(want, " ") {
			t.Errorf("key %s was handled as %s", name(k), got)
		}
	}
	if got := ask[int](w, "select count(*) from mill.subscriptions where position > 0"); got != 4 {
		t.Errorf("%d of 4 shards moved", got)
	}
}
