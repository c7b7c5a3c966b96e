package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/pgmill/pgmill/cmd/bench/internal/lab"
)

// River is measured as it comes, in a schema of its own with its own migrations:
// nothing of pgmill's is on its tables.
const riverSchema = "river"

type riverOrder struct {
	order
}

func (riverOrder) Kind() string { return ordersPlaced }

type riverWorker struct {
	river.WorkerDefaults[riverOrder]
	handle func(i int)
}

func (w *riverWorker) Work(_ context.Context, job *river.Job[riverOrder]) error {
	w.handle(job.Args.Order)
	return nil
}

// riverTuning is what a tuned client differs in; the zero value is River's default:
// a cooldown of 100 ms and a poll each second.
type riverTuning struct{ cooldown, poll time.Duration }

var riverTuned = riverTuning{cooldown: time.Millisecond, poll: 20 * time.Millisecond}

func riverMigrate(ctx context.Context, pool *pgxpool.Pool) error {
	if _, err := pool.Exec(ctx, "create schema "+riverSchema); err != nil {
		return err
	}
	m, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Schema: riverSchema, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	_, err = m.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

// riverClient inserts only if handle is nil.
func riverClient(pool *pgxpool.Pool, t riverTuning, handle func(i int)) (*river.Client[pgx.Tx], error) {
	cfg := &river.Config{
		Schema: riverSchema, Logger: slog.New(slog.DiscardHandler), Workers: river.NewWorkers(),
		FetchCooldown: t.cooldown, FetchPollInterval: t.poll,
	}
	river.AddWorker(cfg.Workers, &riverWorker{handle: handle})
	if handle != nil {
		cfg.Queues = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 100}}
	}
	return river.NewClient(riverpgxv5.New(pool), cfg)
}

// riverEmit is InsertTx where the others emit.
func riverEmit(defaults map[string]int) lab.Scenario {
	return lab.Scenario{
		Name: "emit:river", Note: "+ River's InsertTx, stock client", Defaults: defaults,
		Run: func(ctx context.Context, r *lab.Run) error {
			_, pool, err := opened(ctx, r, r.C())
			if err != nil {
				return err
			}
			defer pool.Close()
			if err := riverMigrate(ctx, pool); err != nil {
				return err
			}
			client, err := riverClient(pool, riverTuning{}, nil)
			if err != nil {
				return err
			}
			e := emitter{statement: func(ctx context.Context, tx pgx.Tx, i int) error {
				_, err := client.InsertTx(ctx, tx, riverOrder{order{i, i % 1000}}, nil)
				return err
			}}
			if err := r.Closed(ctx, r.N(), r.C(), func(ctx context.Context, i int) error { return e.threeTrips(ctx, pool, i) }); err != nil {
				return err
			}
			return expectRows(ctx, pool, riverSchema+".river_job", r.N()+lab.Warm(r.C()))
		},
	}
}
