package faults_test

import (
	"fmt"
	"testing"
	"time"
)

// DESIGN 3, F49: sessions of ours are ended by the server at random, again and again,
// those of handlers, of the lease and of the listener alike.
func TestTerminatedSessionsLoseAndDoubleNothing(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	rounds, events := 15, 3000
	if soaking() {
		rounds, events = 500, 100_000
	}
	s := lots
	s.Attempts = 50 // a connection that is lost five times in a row counts as a failure
	hosts := []*proc{b.start(hostOptions{Subs: []sub{s}}), b.start(hostOptions{Subs: []sub{s}})}
	emitted := b.traffic("t.x", events)
	ended := 0
	for i := range rounds {
		b.wait("select count(*) >= $1 from effect", (i+1)*events/(2*rounds))
		share := 0.5
		if i%5 == 4 {
			share = 1
		}
		ended += ask[int](b, `select count(pg_terminate_backend(pid)) from pg_stat_activity
			where datname = current_database() and application_name like 'pgmill %' and random() < $1`, share)
	}
	emitted()
	b.finished()
	b.exactlyOnce(s.Name, "t.%")
	for _, p := range hosts {
		if !p.alive() {
			t.Errorf("host %s ended:\n%s", p.ID, p.out.tail(20))
		}
	}
	if ended < rounds {
		t.Errorf("only %d sessions were ended", ended)
	}
}

// F80: with one and with two connections for the handlers of many busy shards,
// everything is done, leases are never broken, and nothing idles in a transaction.
func TestF80SmallPoolsStarveNoLease(t *testing.T) {
	t.Parallel()
	for _, conns := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d connections", conns), func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			slow, quick := sub{Name: "test.slow", Events: "t.*", Shards: 8, Batch: 1}, sub{Name: "test.quick", Events: "t.*", Shards: 4}
			p := b.start(hostOptions{Subs: []sub{slow, quick}, Args: []string{fmt.Sprint("--max-conns=", conns)}})
			since := ask[time.Time](b, "select since from pgmill.instance where id = $1", p.ID)
			for i := range 60 {
				b.emit("t.x", fmt.Sprint("t", i), "", order{Millis: 60})
			}
			b.finished()
			b.exactlyOnce(slow.Name, "t.%")
			b.exactlyOnce(quick.Name, "t.%")
			if got := ask[time.Time](b, "select since from pgmill.instance where id = $1", p.ID); !got.Equal(since) {
				t.Errorf("the lease is unbroken since %v; want since the start, %v", got, since)
			}
			if n := p.out.said("lease not renewed"); n > 0 {
				t.Errorf("%d renewals failed", n)
			}
			b.wait(`select count(*) = 0 from pg_stat_activity where datname = current_database() and application_name like 'pgmill %' and state like 'idle in transaction%'`)
		})
	}
}

// DESIGN 4: a fetch whose answer is lost leaves a running claim that its instance
// does not know. After five seconds it hands it back.
func TestClaimOfALostFetchIsHandedBack(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	one := sub{Name: "test.one", Events: "t.*"}
	p := b.start(hostOptions{Subs: []sub{one}})
	b.exec("select mill.pause_subscription('test.one')") // nothing is derived meanwhile
	id := b.emit("t.x", "t1", "", order{})
	lost := ask[int64](b, `insert into pgmill.river_job (state, attempt, attempted_at, attempted_by, args, kind, queue, max_attempts, unique_key, unique_states)
		values ('running', 1, now(), array[$1], '{"shard": 0, "subscription": "test.one"}', 'subscription:test.one', 'subscription', 1, pgmill.claim_key('test.one', 0), b'01000001')
		returning id`, p.ID)
	b.exec("select mill.resume_subscription('test.one')")
	renewed := ask[time.Time](b, "select last_seen from pgmill.instance where id = $1", p.ID)
	b.wait("select last_seen > $2 from pgmill.instance where id = $1", p.ID, renewed)
	if got := ask[int](b, "select count(*) from pgmill.river_job where id = $1", lost); got != 1 {
		t.Errorf("a claim that was just fetched was handed back")
	}
	b.exec("update pgmill.river_job set attempted_at = now() - interval '5 seconds' where id = $1", lost)
	b.wait("select count(*) = 1 from effect where event = $1", id)
	b.finished()
	b.exactlyOnce(one.Name, "t.%")
	if got := ask[int](b, "select count(*) from pgmill.river_job where id = $1", lost); got != 0 {
		t.Errorf("the lost claim is still there")
	}
}
