package faults_test

import (
	"testing"
	"time"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/platformtest"
)

// F12: p1 ends the process, p2 always errors, p3 does not decode; 200 good events
// come after them, and a second subscription beside them. Each is parked after its
// attempts, the good ones are delivered, the second subscription is not held up, and
// unpark redelivers only what was parked.
func TestF12PoisonIsFoundAndParked(t *testing.T) {
	t.Parallel()
	const attempts = 3
	b := newBed(t)
	one := sub{Name: "test.one", Events: "t.*", Attempts: attempts, Batch: 50, Park: true}
	other := sub{Name: "test.other", Events: "u.*"}
	p1 := b.emit("t.x", "p1", "", order{Exit: 137})
	p2 := b.emit("t.x", "p2", "", order{Fail: true})
	p3 := platformtest.Emit(t, b.db, platform.NewEvent{Type: "t.x", Target: "p3", Data: map[string]any{"millis": "many"}})[0]
	b.exec("select count(mill.emit('t.x', 'g' || g)), count(mill.emit('u.x', 'g' || g)) from generate_series(1, 200) g")
	f := b.keep(1, hostOptions{Subs: []sub{one, other}})
	b.wait("select position >= (select count(*) from pgmill.event) from mill.subscriptions where name = 'test.other'")
	b.exec("create function due() returns boolean language sql as $$ with x as (update pgmill.shard set next_retry_at = now() where next_retry_at > now() returning 1) select exists (select from x) $$")
	b.wait("select due() is not null and count(*) = 3 from mill.parked_events")
	deaths := f.died()
	if deaths > attempts {
		t.Errorf("%d deaths until the poison was found; want at most %d", deaths, attempts)
	}
	b.finished()
	if got := b.list("select event_id - $1 || ' ' || reason || ' ' || attempts from mill.parked_events order by event_id", p1); got != "0 host_lost 3\n1 handler_error 3\n2 bad_data 1" {
		t.Errorf("parked:\n%s", got)
	}
	if got := ask[int](b, "select count(*) from effect where sub = 'test.one' and event > $1", p3); got != 200 {
		t.Errorf("%d of 200 good events were delivered", got)
	}
	b.exactlyOnce("test.other", "u.%")
	before := ask[int](b, "select count(*) from effect")

	// The killer kills once more, and is parked again.
	b.exec("select mill.unpark('test.one', 'p1')")
	b.wait("select due() is not null and replay_pos is null and parked_at > $1 from pgmill.parked_key where key = 'p1'", ask[time.Time](b, "select now()"))
	b.wait("select due() is not null and bool_and(instance is null and next_retry_at is null) from mill.subscriptions where name = 'test.one'")
	if got := f.died(); got != deaths+1 {
		t.Errorf("unparking the killer ended %d hosts; want 1", got-deaths)
	}
	if got := ask[int](b, "select count(*) from seen where event = $1", p2); got != attempts {
		t.Errorf("p2 was tried %d times; want %d", got, attempts)
	}
	if got := ask[int](b, "select count(*) from effect"); got != before {
		t.Errorf("%d effects more after the unpark", got-before)
	}
}

// F12 with on_poison hold: the shard stops at the killer, no host dies any more, and
// the other subscription goes on.
func TestF12PoisonHoldsItsShardOnly(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	one, other := sub{Name: "test.one", Events: "t.*", Attempts: 2, Batch: 50}, sub{Name: "test.other", Events: "u.*"}
	b.emit("t.x", "p1", "", order{Exit: 137})
	b.exec("select count(mill.emit('t.x', 'g' || g)) from generate_series(1, 20) g")
	f := b.keep(1, hostOptions{Subs: []sub{one, other}})
	b.exec("create function due() returns boolean language sql as $$ with x as (update pgmill.shard set next_retry_at = now() where next_retry_at > now() returning 1) select exists (select from x) $$")
	b.wait("select due() is not null and exists (select from mill.subscriptions where name = 'test.one' and state = 'held')")
	deaths := f.died()
	if deaths > 2 {
		t.Errorf("%d deaths; want at most 2", deaths)
	}
	b.emit("u.x", "g", "", order{})
	b.finished("test.one")
	b.exactlyOnce("test.other", "u.%")
	if got := b.list("select state || ' ' || reason || ' ' || attempts from mill.subscriptions where name = 'test.one'"); got != "held host_lost 2" {
		t.Errorf("the shard is %s; want held host_lost 2", got)
	}
	b.exec("select mill.drop_event('test.one')")
	b.wait("select count(*) = 20 from effect where sub = 'test.one'")
	if f.died() != deaths {
		t.Errorf("a host died after the shard was held")
	}
}
