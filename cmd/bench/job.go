package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"golang.org/x/sync/errgroup"

	"github.com/pgmill/pgmill/cmd/bench/internal/lab"
	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/host"
)

const benchTopic = "job.bench"

var jobScenarios = []lab.Scenario{
	{Name: "job:drain", Note: "tracked no-op jobs, a Run, 500 at once; limits=1: with limits of the topic and of each scope, which are not met", Defaults: map[string]int{"n": 50_000, "slots": 500, "conns": 32, "limits": 0}, Run: jobDrain(false)},
	{Name: "job:drain_tx", Note: "one insert that commits with the job, a Handle", Defaults: map[string]int{"n": 20_000, "slots": 100, "conns": 20}, Run: jobDrain(true)},
	{Name: "job:drain_river", Note: "River at its best: 500 workers, FetchCooldown 1 ms", Defaults: map[string]int{"n": 50_000, "slots": 500}, Run: riverDrain},
	{Name: "job:business", Note: "the same insert and nothing else, 16 clients", Defaults: map[string]int{"n": 20_000, "c": 16}, Run: jobBusiness},
	{Name: "job:submit_many", Note: "mill.submit_jobs, 10,000 a call, c clients", Defaults: map[string]int{"n": 200_000, "c": 1}, Run: jobSubmitMany},
	{Name: "job:claim", Note: "one claim of a hundred from a topic with many that wait", Defaults: map[string]int{"n": 100, "waiting": 100_000}, Run: jobClaim},
}

// jobStep does nothing but count, or writes one row. limit 0: none.
func jobStep(writes bool, limit int, f *flow) platform.Function {
	if writes {
		return platform.Step[json.RawMessage, json.RawMessage]{Topic: benchTopic, Handle: func(ctx context.Context, tx pgx.Tx, in json.RawMessage) (json.RawMessage, error) {
			defer f.call(1)
			_, err := tx.Exec(ctx, `insert into done (at) values (now())`)
			return nil, err
		}}
	}
	return platform.Step[json.RawMessage, json.RawMessage]{Topic: benchTopic, Concurrency: limit, PerScope: limit, Run: func(context.Context, *platform.Attempt, json.RawMessage) (json.RawMessage, error) {
		f.call(1)
		return nil, nil
	}}
}

const submitMany = `select count(*) from mill.submit_jobs((select jsonb_agg(jsonb_build_object('topic', $2::text, 'input', jsonb_build_object('n', n))) from generate_series(1, $1::int) n))`

func submitted(ctx context.Context, dsn string, n int) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx) //nolint:errcheck // nothing is lost
	for left := n; left > 0; left -= 10_000 {
		if _, err := conn.Exec(ctx, submitMany, min(left, 10_000), benchTopic); err != nil {
			return err
		}
	}
	_, err = conn.Exec(ctx, "vacuum analyze pgmill.job, pgmill.job_waiting, pgmill.river_job")
	return err
}

// jobDrain is from a host's start to the end of the last of n jobs that wait.
func jobDrain(writes bool) func(ctx context.Context, r *lab.Run) error {
	return func(ctx context.Context, r *lab.Run) error {
		dsn, err := migrated(ctx, r)
		if err != nil {
			return err
		}
		if err := once(ctx, dsn, `create table done (at timestamptz)`); err != nil {
			return err
		}
		if err := submitted(ctx, dsn, r.N()); err != nil {
			return err
		}
		f := &flow{}
		f.expect(r.N())
		registry := platform.NewRegistry()
		if err := registry.Add(jobStep(writes, r.Param("limits")*10*r.N(), f)); err != nil {
			return err
		}
		w := &host.Worker{Database: dsn, Registry: registry, MaxJobs: r.Param("slots"), MaxConns: r.Param("conns"), Log: host.NewLogger(os.Stderr, "json", slog.LevelWarn, dsn)}
		r.Start()
		stop, err := startWorker(ctx, w)
		if err != nil {
			return err
		}
		if err := f.wait(ctx); err != nil {
			stop()
			return err
		}
		pool, err := lab.Pool(ctx, dsn, 1, nil)
		if err != nil {
			stop()
			return err
		}
		defer pool.Close()
		err = f.report(r)
		stop()
		var done int
		if err := pool.QueryRow(ctx, `select count(*) from pgmill.job where state = 'SUCCEEDED'`).Scan(&done); err != nil {
			return err
		}
		if done != r.N() {
			return errors.New("not all jobs have succeeded")
		}
		return err
	}
}

type riverNothing struct {
	N int `json:"n"`
}

func (riverNothing) Kind() string { return "nothing" }

type riverNothingWorker struct {
	river.WorkerDefaults[riverNothing]
	f *flow
}

func (w *riverNothingWorker) Work(context.Context, *river.Job[riverNothing]) error {
	w.f.call(1)
	return nil
}

func riverDrain(ctx context.Context, r *lab.Run) error {
	dsn, pool, err := opened(ctx, r, 32)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := riverMigrate(ctx, pool); err != nil {
		return err
	}
	f := &flow{}
	f.expect(r.N())
	cfg := &river.Config{Schema: riverSchema, Logger: slog.New(slog.DiscardHandler), Workers: river.NewWorkers(), FetchCooldown: time.Millisecond,
		FetchPollInterval: 20 * time.Millisecond, Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: r.Param("slots")}}}
	river.AddWorker(cfg.Workers, &riverNothingWorker{f: f})
	client, err := river.NewClient(riverpgxv5.New(pool), cfg)
	if err != nil {
		return err
	}
	for left := r.N(); left > 0; left -= 10_000 {
		jobs := make([]river.InsertManyParams, min(left, 10_000))
		for i := range jobs {
			jobs[i] = river.InsertManyParams{Args: riverNothing{i}}
		}
		if _, err := client.InsertManyFast(ctx, jobs); err != nil {
			return err
		}
	}
	if err := once(ctx, dsn, "vacuum analyze "+riverSchema+".river_job"); err != nil {
		return err
	}
	r.Start()
	if err := client.Start(ctx); err != nil {
		return err
	}
	defer func() { _ = client.Stop(context.WithoutCancel(ctx)) }()
	if err := f.wait(ctx); err != nil {
		return err
	}
	return f.report(r)
}

// jobBusiness is the effect of job:drain_tx alone: begin, insert, commit.
func jobBusiness(ctx context.Context, r *lab.Run) error {
	dsn, err := migrated(ctx, r)
	if err != nil {
		return err
	}
	if err := once(ctx, dsn, `create table done (at timestamptz)`); err != nil {
		return err
	}
	pool, err := lab.Pool(ctx, dsn, r.C(), nil)
	if err != nil {
		return err
	}
	defer pool.Close()
	return r.Closed(ctx, r.N(), r.C(), func(ctx context.Context, _ int) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `insert into done (at) values (now())`)
			return err
		})
	})
}

func jobSubmitMany(ctx context.Context, r *lab.Run) error {
	_, pool, err := opened(ctx, r, r.C())
	if err != nil {
		return err
	}
	defer pool.Close()
	r.Ops = r.N() / 10_000 * 10_000
	r.Start()
	began := time.Now()
	calls, ctx := errgroup.WithContext(ctx)
	calls.SetLimit(r.C())
	for range r.Ops / 10_000 {
		calls.Go(func() error {
			_, err := pool.Exec(ctx, submitMany, 10_000, benchTopic)
			return err
		})
	}
	err = calls.Wait()
	r.StopAfter(time.Since(began))
	return err
}

// jobClaim times admissions of a hundred each, whatever the number that waits.
func jobClaim(ctx context.Context, r *lab.Run) error {
	dsn, err := migrated(ctx, r)
	if err != nil {
		return err
	}
	if err := submitted(ctx, dsn, r.Param("waiting")); err != nil {
		return err
	}
	pool, err := lab.Pool(ctx, dsn, 1, nil)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, `insert into pgmill.instance (kind, id, ttl) values ('worker', 'bench', '1 h')`); err != nil {
		return err
	}
	return r.Closed(ctx, r.N(), 1, func(ctx context.Context, _ int) error {
		_, err := pool.Exec(ctx, `select count(*) from pgmill.admit('bench', array[$1], 100)`, benchTopic)
		return err
	})
}

// enqueued is a business transaction that submits a job where the others emit.
func enqueued(variant, note string) emitter {
	return emitter{variant: variant, note: note, table: "pgmill.job",
		statement: func(ctx context.Context, tx pgx.Tx, i int) error {
			_, err := platform.Enqueue(ctx, tx, platform.NewJob{Topic: benchTopic, Input: order{i, i % 1000}})
			return err
		},
		queue: func(b *pgx.Batch, i int) error {
			b.Queue("select mill.submit_job($1, jsonb_build_object('order', $2::int))", benchTopic, i)
			return nil
		}}
}

// openJob hands messages over as jobs.
func openJob(ctx context.Context, dsn string, _ *pgxpool.Pool, handled func(int)) (putFunc, func(), error) {
	registry := platform.NewRegistry()
	err := registry.Add(platform.Step[order, json.RawMessage]{Topic: benchTopic, Run: func(_ context.Context, _ *platform.Attempt, o order) (json.RawMessage, error) {
		handled(o.Order)
		return nil, nil
	}})
	if err != nil {
		return nil, nil, err
	}
	stop, err := startWorker(ctx, &host.Worker{Database: dsn, Registry: registry, Log: host.NewLogger(os.Stderr, "json", slog.LevelWarn, dsn)})
	return func(ctx context.Context, tx pgx.Tx, i int) error {
		_, err := platform.Enqueue(ctx, tx, platform.NewJob{Topic: benchTopic, Input: order{Order: i}})
		return err
	}, stop, err
}
