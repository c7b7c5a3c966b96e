package main

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/cmd/bench/internal/lab"
	"github.com/pgmill/pgmill/platform"
)

// emitter is what is added to the business transaction, and under what conditions.
type emitter struct {
	variant, note string
	table         string // what must hold n rows in the end; "" for nothing
	quiet         bool   // the emitters' sessions do not ring the bell
	host          string // "": none; "awake": one that nothing concerns; "works": one that consumes all

	statement func(ctx context.Context, tx pgx.Tx, i int) error // in three round trips and its own
	queue     func(b *pgx.Batch, i int) error                   // in one round trip with the rest
}

var emitScenarios = emitVariants(
	emitter{variant: "business", note: "the business transaction alone",
		statement: func(context.Context, pgx.Tx, int) error { return nil },
		queue:     func(*pgx.Batch, int) error { return nil }},
	emitter{variant: "hand", note: "+ a hand-written outbox insert", table: "hand_event",
		statement: handInsert,
		queue:     func(b *pgx.Batch, i int) error { b.Queue(addHand, placedByHand(i)...); return nil }},
	emitter{variant: "hand_notify", note: "+ the same + NOTIFY in each transaction", table: "hand_event",
		statement: func(ctx context.Context, tx pgx.Tx, i int) error {
			_, err := tx.Exec(ctx, "select pg_notify('hand', '')")
			return errors.Join(err, handInsert(ctx, tx, i))
		},
		queue: func(b *pgx.Batch, i int) error {
			b.Queue(addHand, placedByHand(i)...)
			b.Queue("select pg_notify('hand', '')")
			return nil
		}},
	ours("pgmill", "+ Emit, bells on, no host anywhere", false, ""),
	ours("pgmill_quiet", "+ Emit, bells off", true, ""),
	ours("pgmill_awake", "+ Emit, bells on, a host awake that nothing concerns", false, "awake"),
	ours("pgmill_works", "+ Emit, bells on, a host that consumes everything", false, "works"),
	enqueued("pgmill_job", "+ Enqueue, bells on, no host anywhere"),
	ours("pgmill_quiet_awake", "+ Emit, bells off, the same host, which then polls", true, "awake"),
)

func ours(variant, note string, quiet bool, host string) emitter {
	return emitter{
		variant: variant, note: note, table: "pgmill.event", quiet: quiet, host: host,
		statement: func(ctx context.Context, tx pgx.Tx, i int) error {
			_, err := platform.Emit(ctx, tx, placed(i))
			return err
		},
		queue: func(b *pgx.Batch, i int) error {
			_, err := platform.QueueEmit(b, placed(i))
			return err
		},
	}
}

func handInsert(ctx context.Context, tx pgx.Tx, i int) error {
	_, err := tx.Exec(ctx, addHand, placedByHand(i)...)
	return err
}

// emitVariants makes two scenarios of each: BEGIN, statements, COMMIT as round
// trips of their own, and the whole transaction in one.
func emitVariants(all ...emitter) []lab.Scenario {
	defaults := map[string]int{"n": 20_000, "c": 16, "delay": 0}
	scenarios := []lab.Scenario{riverEmit(defaults)}
	for _, e := range all {
		scenarios = append(scenarios,
			lab.Scenario{Name: "emit:" + e.variant, Note: e.note, Defaults: defaults, Run: e.run(e.threeTrips)},
			lab.Scenario{Name: "emit:" + e.variant + "_1rt", Note: e.note + ", one round trip", Defaults: defaults, Run: e.run(e.oneTrip)})
	}
	return scenarios
}

func (e emitter) threeTrips(ctx context.Context, pool *pgxpool.Pool, i int) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, addBusiness, i, i%1000); err != nil {
			return err
		}
		return e.statement(ctx, tx, i)
	})
}

func (e emitter) oneTrip(ctx context.Context, pool *pgxpool.Pool, i int) error {
	b := &pgx.Batch{} // one implicit transaction
	b.Queue(addBusiness, i, i%1000)
	if err := e.queue(b, i); err != nil {
		return err
	}
	return pool.SendBatch(ctx, b).Close()
}

func (e emitter) run(transaction func(context.Context, *pgxpool.Pool, int) error) func(context.Context, *lab.Run) error {
	return func(ctx context.Context, r *lab.Run) error {
		dsn, err := migrated(ctx, r)
		if err != nil {
			return err
		}
		session := map[string]string{}
		if e.quiet {
			session["pgmill.quiet"] = "on"
		}
		pool, err := lab.Pool(ctx, dsn, r.C(), session)
		if err != nil {
			return err
		}
		defer pool.Close()
		heard, err := listenAll(ctx, dsn, "pgmill", "hand")
		if err != nil {
			return err
		}
		defer heard.stop()
		stop, err := e.startHost(ctx, dsn)
		if err != nil {
			return err
		}
		defer stop()
		err = r.Closed(ctx, r.N(), r.C(), func(ctx context.Context, i int) error {
			if i == 0 {
				heard.reset()
			}
			return transaction(ctx, pool, i)
		})
		if err != nil {
			return err
		}
		heard.report(r)
		if e.table == "" {
			return nil
		}
		return expectRows(ctx, pool, e.table, r.N()+lab.Warm(r.C()))
	}
}

func (e emitter) startHost(ctx context.Context, dsn string) (stop func(), err error) {
	events := map[string]string{"awake": "nothing.of.this", "works": ordersPlaced}[e.host]
	if events == "" {
		return func() {}, nil
	}
	return startHost(ctx, dsn, noop("bench.emit", events))
}
