package model

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/host"
	"github.com/pgmill/pgmill/platform/platformtest"
)

// Some mistakes have several walls behind them, so that chance does not find them in
// a minute. These scenarios walk right up to them, with real hosts.

// F09, F34: a host that was away for so long that its claim went to another comes
// back with its work done and must not commit it.
func TestStaleHostCommitsNothing(t *testing.T) {
	t.Parallel()
	for _, f := range staleHost(t, newWorld(t)) {
		t.Error(f)
	}
}

// F05: an event that arrives while a shard is given back is not left to the poll.
func TestNoEventWaitsForThePoll(t *testing.T) {
	t.Parallel()
	for _, f := range lostWakeup(t, newWorld(t)) {
		t.Error(f)
	}
}

// gate stops a handler in its transaction, after its writes.
type gate struct {
	entered chan struct{}
	open    chan struct{}
}

func (g gate) subscription(who string) platform.Subscription {
	return platform.Subscription{
		Name: "model.gate", Events: []string{"model.gate"}, Owners: platform.OwnedBy("model"), From: platform.FromZero, MaxAttempts: 100, Timeout: time.Minute,
		Handle: func(ctx context.Context, tx pgx.Tx, e platform.Event) error {
			if _, err := tx.Exec(ctx, `insert into effect (subscription, event, pos, key) values ('model.gate', $1, $2, $3)`, e.ID, e.Pos, who); err != nil {
				return err
			}
			select {
			case g.entered <- struct{}{}:
			default:
			}
			select {
			case <-g.open:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
	}
}

func staleHost(t testing.TB, w *world) []fault {
	t.Helper()
	w.must(t, `drop trigger commit_fails on effect`)
	a, b := gate{make(chan struct{}, 1), make(chan struct{})}, gate{make(chan struct{}, 1), make(chan struct{})}
	old := platformtest.HostWith(t, &host.Worker{Database: w.dsn, LeaseTTL: 10 * time.Minute, Poll: 100 * time.Millisecond}, a.subscription("old"))
	platformtest.Emit(t, w.pool, platform.NewEvent{Type: "model.gate", Target: "t"})
	<-a.entered
	// Away for two hours, by the database's clock: its lease is gone, and nobody ends
	// the sessions of one that is gone for so long.
	w.must(t, `update pgmill.instance set last_seen = now() - interval '2 hours', since = now() - interval '3 hours' where id = $1`, old.ID())
	platformtest.HostWith(t, &host.Worker{Database: w.dsn, LeaseTTL: time.Second, Poll: 100 * time.Millisecond}, b.subscription("new"))
	<-b.entered

	close(a.open) // it is back, and settles
	if !w.within(t, 20*time.Second, `select not exists (select from pg_stat_activity where application_name = $1 and xact_start is not null and query not like '%pg_stat_activity%')`, "pgmill "+old.ID()) {
		t.Fatalf("the old host's transaction does not end")
	}
	var faults []fault
	if n := ask[int](t, w, `select count(*) from effect where key = 'old'`); n > 0 {
		faults = append(faults, faultf("stale", "a host whose claim another has committed %d effects", n))
	}
	close(b.open)
	if !w.within(t, 20*time.Second, `select lag_events = 0 from mill.subscriptions where name = 'model.gate'`) {
		faults = append(faults, faultf("stalled", "the new holder does not get on"))
	}
	if n := ask[int](t, w, `select count(*) from effect`); n != 1 {
		faults = append(faults, faultf("doubled", "%d effects of one event", n))
	}
	return faults
}

// lostWakeup sends each of some subscriptions an event at about the moment when its
// idle shard is given back, to a host that polls once in ten minutes.
func lostWakeup(t testing.TB, w *world) []fault {
	t.Helper()
	const shards, rounds = 12, 3
	faults := &found{}
	handled := make([]chan int64, shards)
	var subs []platform.Subscription
	for i := range shards {
		handled[i] = make(chan int64, 100)
		subs = append(subs, platform.Subscription{
			Name: fmt.Sprintf("model.wake%d", i), Events: []string{fmt.Sprintf("model.wake%d", i)}, Owners: platform.OwnedBy("model"),
			Handle: func(_ context.Context, _ pgx.Tx, e platform.Event) error {
				handled[i] <- e.ID
				return nil
			},
		})
	}
	platformtest.HostWith(t, &host.Worker{Database: w.dsn, LeaseTTL: 10 * time.Second, Poll: 10 * time.Minute, Log: nil}, subs...)
	var all sync.WaitGroup
	for i := range shards {
		all.Go(func() {
			for range rounds {
				id, err := wake(t.Context(), w, i)
				if err != nil {
					faults.add(faultf("error", "emit: %v", err))
					return
				}
				late := time.NewTimer(8 * time.Second)
				for got := int64(0); got != id; {
					select {
					case got = <-handled[i]:
					case <-late.C:
						faults.add(faultf("stalled", "event %d of subscription %d waits for the poll", id, i))
						return
					}
				}
				late.Stop()
				// The shard lingers for two seconds; this is the scenario's clock, not a wait.
				time.Sleep(2*time.Second - 20*time.Millisecond + rand.N(90*time.Millisecond))
			}
		})
	}
	all.Wait()
	return faults.all
}

// wake emits an event, with the bell armed as by a host that polls as it should.
func wake(ctx context.Context, w *world, i int) (id int64, err error) {
	err = pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `select pgmill.arm(true)`); err != nil {
			return err
		}
		ids, err := platform.Emit(ctx, tx, platform.NewEvent{Type: fmt.Sprintf("model.wake%d", i), Target: "t"})
		if err == nil {
			id = ids[0]
		}
		return err
	})
	return id, err
}
