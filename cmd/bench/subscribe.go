package main

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/cmd/bench/internal/lab"
	"github.com/pgmill/pgmill/platform"
)

const batchSize = 500 // a subscription's default, and that of the loops by hand

// consumer is how a batch is handled; exactly one of the two is set, as in a
// subscription.
type consumer struct {
	variant, note string
	n             int
	batch         func(ctx context.Context, tx pgx.Tx, events []platform.Event) error
	each          func(ctx context.Context, tx pgx.Tx, e platform.Event) error
}

var consumers = []consumer{
	{variant: "noop", note: "nothing is done with a batch", n: 300_000,
		batch: func(context.Context, pgx.Tx, []platform.Event) error { return nil }},
	{variant: "unnest", note: "one unnest insert a batch", n: 300_000,
		batch: func(ctx context.Context, tx pgx.Tx, events []platform.Event) error {
			positions, data := columns(events)
			_, err := tx.Exec(ctx, addMany, positions, data)
			return err
		}},
	{variant: "each", note: "one insert an event", n: 30_000, each: addEvent},
}

var subscribeScenarios = func() (all []lab.Scenario) {
	for _, c := range consumers {
		defaults := map[string]int{"n": c.n, "times": 1}
		all = append(all,
			lab.Scenario{Name: "subscribe:pgmill_" + c.variant, Note: "one ordered subscription, one shard: " + c.note, Defaults: defaults, Run: c.byHost},
			lab.Scenario{Name: "subscribe:log_" + c.variant, Note: "a loop by hand on pgmill's log: " + c.note, Defaults: defaults, Run: c.byHand(onLog)},
			lab.Scenario{Name: "subscribe:outbox_" + c.variant, Note: "a loop by hand on a plain outbox behind xmin: " + c.note, Defaults: defaults, Run: c.byHand(onOutbox)})
	}
	return all
}()

// byHost drains a backlog of n by a host in this process, times over.
func (c consumer) byHost(ctx context.Context, r *lab.Run) error {
	dsn, err := migrated(ctx, r)
	if err != nil {
		return err
	}
	if err := once(ctx, dsn, projectionTable); err != nil {
		return err
	}
	if err := backlog(ctx, dsn, r.N()); err != nil {
		return err
	}
	f := &flow{}
	f.expect(r.N())
	var filling sync.RWMutex // handlers wait while a backlog is being made
	arrive := func(n int) {
		filling.RLock()
		defer filling.RUnlock()
		f.call(n)
	}
	sub := bench("bench.subscribe", ordersPlaced)
	if c.batch != nil {
		sub.HandleBatch = func(ctx context.Context, tx pgx.Tx, events []platform.Event) error {
			arrive(len(events))
			return c.batch(ctx, tx, events)
		}
	} else {
		sub.Handle = func(ctx context.Context, tx pgx.Tx, e platform.Event) error {
			arrive(1)
			return c.each(ctx, tx, e)
		}
	}
	r.Start()
	stop, err := startHost(ctx, dsn, sub)
	if err != nil {
		return err
	}
	defer stop()
	if err := f.wait(ctx); err != nil {
		return err
	}
	for time := 2; time <= r.Param("times"); time++ {
		if err := refill(ctx, dsn, &filling, f, r.N(), time); err != nil {
			return err
		}
		if err := f.wait(ctx); err != nil {
			return err
		}
	}
	r.Set("rss_mb", rssMB())
	return f.report(r)
}

func refill(ctx context.Context, dsn string, filling *sync.RWMutex, f *flow, n, time int) error {
	filling.Lock()
	defer filling.Unlock()
	f.expect(n)
	if err := fill(ctx, dsn, "pgmill.event", n, 10); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx) //nolint:errcheck // nothing is lost
	if err := position(ctx, conn, n*time); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "select pg_notify('pgmill', '')")
	return err
}
