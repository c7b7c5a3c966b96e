package faults_test

import (
	"math/rand/v2"
	"testing"
	"time"
)

// lots is the subscription of the tests with much traffic.
var lots = sub{Name: "test.lots", Events: "t.*", Shards: 4, Attempts: 5, Batch: 50}

// F14, F05, N34: hosts are killed at random moments while events come, some of them
// rolled back. Nothing is lost, nothing rolled back is delivered, effects are once.
func TestF14KilledHostsLoseAndDoubleNothing(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	kills, events := 10, 3000
	if soaking() {
		kills, events = 200, 60_000
	}
	f := b.keep(3, hostOptions{Subs: []sub{lots}})
	emitted := b.traffic("t.x", events)
	for i := range kills {
		b.wait("select count(*) >= $1 from effect", (i+1)*events/(2*kills))
		if p := f.some(rand.IntN(3)); p != nil {
			p.kill()
		}
	}
	emitted()
	b.finished()
	b.exactlyOnce(lots.Name, "t.%")
	if f.died() < kills/2 {
		t.Errorf("only %d deaths", f.died())
	}
}

// F09, F49: hosts are paused past their lease while others take over, and come back.
func TestF49PausedHostsComeBackAndDoubleNothing(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	rounds, events := 3, 3000
	if soaking() {
		rounds, events = 50, 60_000
	}
	hosts := []*proc{b.start(hostOptions{Subs: []sub{lots}}), b.start(hostOptions{Subs: []sub{lots}})}
	emitted := b.traffic("t.x", events)
	for i := range rounds {
		b.wait("select count(*) >= $1 from effect", (i+1)*events/(2*rounds))
		p := hosts[i%2]
		p.pause()
		b.wait("select not live from mill.instances where id = $1", p.ID)
		b.wait("select count(*) = 0 from pgmill.river_job where state = 'running' and attempted_by[array_upper(attempted_by, 1)] = $1", p.ID)
		p.resume()
		b.wait("select live from mill.instances where id = $1", p.ID)
	}
	emitted()
	b.finished()
	b.exactlyOnce(lots.Name, "t.%")
}

// F09: the owner of a shard is stopped in the middle of a handler, another consumes
// 500, the first comes back, and gets the shard again when the second is killed.
func TestF09StalledOwnerMovesNoCursorBack(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	one := sub{Name: "test.one", Events: "t.*", Attempts: 5, Batch: 500, Timeout: time.Minute}
	h1 := b.start(hostOptions{Subs: []sub{one}})
	id := b.emit("t.x", "t0", "", order{Gate: "go"})
	b.wait("select count(*) = 1 from seen where event = $1", id)
	h2 := b.start(hostOptions{Subs: []sub{one}})
	h1.pause()
	b.exec("select count(mill.emit('t.x', 't' || g)) from generate_series(1, 500) g")
	b.exec("insert into gate values ('go')")
	b.finished()
	if got := ask[string](b, "select coalesce(max(instance), '') from mill.subscriptions"); got == h1.ID {
		t.Errorf("the stopped host still has the shard")
	}
	h1.resume()
	b.wait("select live from mill.instances where id = $1", h1.ID)
	h2.kill()
	b.exec("select count(mill.emit('t.x', 'u' || g)) from generate_series(1, 100) g")
	b.finished()
	b.exactlyOnce(one.Name, "t.%")
	if got := ask[int](b, "select count(*) from seen"); got != 2 {
		t.Errorf("the event in flight at the pause was delivered %d times; want 2", got)
	}
	if n := h1.out.said("stale writer rejected") + h1.out.said("shard left to another host"); n == 0 {
		t.Errorf("the stalled owner does not say that it lost the lease:\n%s", h1.out.tail(20))
	}
	if got := ask[int](b, "select max(attempts) from mill.subscriptions"); got != 0 {
		t.Errorf("%d attempts were burnt", got)
	}
}

// DESIGN 4: a killed host's claims are claimable again within ttl + 1 s, by the
// database's clock, when another host lives.
func TestKilledHostIsRescuedWithinItsLeaseAndASecond(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	one := sub{Name: "test.one", Events: "t.*", Timeout: time.Minute}
	h1 := b.start(hostOptions{Subs: []sub{one}})
	h2 := b.start(hostOptions{Subs: []sub{one}})
	b.wait("select clock_timestamp() - since > ttl from pgmill.instance where id = $1", h2.ID) // it may rescue
	id := b.emit("t.x", "t0", "", order{Gate: "go"})
	b.wait("select count(*) = 1 from seen where event = $1", id)
	holder, other := h1, h2
	if ask[string](b, "select instance from mill.subscriptions") == h2.ID {
		holder, other = h2, h1
	}
	killed := ask[time.Time](b, "select clock_timestamp()")
	holder.kill()
	b.wait("select instance = $1 from mill.subscriptions", other.ID)
	took := ask[float64](b, "select extract(epoch from created_at - $1)::float8 from pgmill.river_job where queue = 'subscription'", killed)
	if limit := (ttl + time.Second).Seconds(); took > limit {
		t.Errorf("claimable again %.2f s after the kill; want within %.1f s", took, limit)
	}
	b.exec("insert into gate values ('go')")
	b.finished()
	b.exactlyOnce(one.Name, "t.%")
}

// F38: a restarted host is another instance, though it has the same name: what it
// did before is taken back within two leases, and nothing stays with the dead.
func TestF38RestartedHostDoesNotOwnItsGhosts(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	s := sub{Name: "test.lots", Events: "t.*", Shards: 20, Timeout: time.Minute}
	h1 := b.start(hostOptions{Subs: []sub{s}})
	for range 60 {
		b.emit("t.x", "t"+string(rune('a'+rand.IntN(26)))+string(rune('a'+rand.IntN(26))), "", order{Gate: "go"})
	}
	b.wait("select count(*) >= 15 from seen")
	ghosts := ask[int](b, "select claims from mill.instances where id = $1", h1.ID)
	h1.kill()
	h2 := b.start(hostOptions{Subs: []sub{s}})
	if h1.ID == h2.ID {
		t.Errorf("both are %s", h1.ID)
	}
	b.wait("select claims >= $2 from mill.instances where id = $1", h2.ID, ghosts)
	if took := ask[float64](b, "select extract(epoch from max(created_at) - (select since from pgmill.instance where id = $1))::float8 from pgmill.river_job where state = 'running'", h2.ID); took > (2 * ttl).Seconds() {
		t.Errorf("%d claims were taken back %.2f s after the restart; want within two leases of %v", ghosts, took, ttl)
	}
	if got := ask[int](b, "select count(*) from pgmill.river_job j where state = 'running' and not exists (select from mill.instances i where i.live and i.id = j.attempted_by[array_upper(j.attempted_by, 1)])"); got != 0 {
		t.Errorf("%d claims are with an instance without a lease", got)
	}
	b.exec("insert into gate values ('go')")
	b.finished()
	b.exactlyOnce(s.Name, "t.%")
}
