package faults_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pgmill/pgmill/platform/platformtest"
)

// N45, F14: the number of shards changes, 1 to 4 to 2 and back, while events come and
// hosts are killed in the middle of each change. Each change ends, keys stay in order,
// effects are once. The long form goes round fifty times.
func TestReshardWhileHostsAreKilled(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	rounds := 1
	if soaking() {
		rounds = 50
	}
	s := sub{Name: "test.lots", Events: "t.*", Attempts: 5, Batch: 20}
	f := b.keep(3, hostOptions{Subs: []sub{s}})
	for i := range 3 * rounds {
		shards := []int{4, 2, 1}[i%3]
		emitted := b.traffic("t.x", 600)
		b.wait("select count(*) >= $1 from effect", 500*i+100)
		b.exec("select mill.reshard_subscription('test.lots', $1)", shards)
		for range 1 + rand.IntN(3) {
			b.wait(`select exists (select from pgmill.river_job j join mill.instances i on i.live and i.id = any (j.attempted_by) where j.state = 'running')
				or not exists (select from pgmill.reshard)`)
			if p := f.some(rand.IntN(3)); p != nil {
				p.kill()
			}
		}
		platformtest.WaitWithin(t, b.db, 2*time.Minute, "select count(*) = $1 and not exists (select from pgmill.reshard) from mill.subscriptions where name = 'test.lots'", shards)
		emitted()
	}
	b.finished()
	b.exactlyOnce(s.Name, "t.%")
	if got := ask[int](b, "select count(*) from mill.audit where action = 'subscription.resharded'"); got != 3*rounds {
		t.Errorf("%d changes of the number of shards; want %d", got, 3*rounds)
	}
	if f.died() < 3*rounds {
		t.Errorf("only %d deaths", f.died())
	}
}
