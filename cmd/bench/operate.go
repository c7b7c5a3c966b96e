package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/cmd/bench/internal/lab"
	"github.com/pgmill/pgmill/cmd/bench/internal/report"
	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/cleanup"
	"github.com/pgmill/pgmill/platform/host"
	"github.com/pgmill/pgmill/platform/platformtest/pgbouncer"
)

// operateScenarios are what an installation does besides running functions.
var operateScenarios = []lab.Scenario{
	{Name: "operate:pooled", Note: "commit to handler behind PgBouncer in transaction mode; direct=1: with a DSN past it for LISTEN",
		Defaults: map[string]int{"n": 1000, "rate": 100, "direct": 0}, Run: pooled},
	{Name: "operate:retention", Note: "n old jobs deleted while rate jobs/s come, for secs, after secs without: p99 from submit to start, the longest batch",
		Defaults: map[string]int{"n": 5_000_000, "rate": 100, "secs": 60}, Run: retention},
	{Name: "operate:replay", Note: "n events handled by a subscription, then the same once more by a replay from zero",
		Defaults: map[string]int{"n": 500_000}, Run: replay},
	{Name: "operate:schedules", Note: "a host in this process with n schedules, none of them due, for secs",
		Defaults: map[string]int{"n": 10_000, "secs": 30}, Run: schedules},
}

var operateComparisons = []report.Comparison{
	{
		Name: "behind a pooler", Metric: "p99_ms", Base: "direct", Rounds: 2,
		Runs: []report.Entry{
			{Spec: "latency:pgmill", As: "direct"},
			{Spec: "operate:pooled,direct=1", As: "pooled, LISTEN past it"},
			{Spec: "operate:pooled", As: "pooled"},
		},
		Goals: []report.Goal{atMost("pooled", "p99_ms", 300), {Of: "pooled, LISTEN past it", Than: "direct", Metric: "p99_ms", Op: "<=", Want: 1.3}},
	},
	{
		Name: "retention beside traffic", Metric: "p99_of_before", Rounds: 1,
		Runs:  entries("operate:retention"),
		Goals: []report.Goal{atMost("operate:retention", "longest_batch_s", 1), atMost("operate:retention", "p99_of_before", 2)},
	},
	{
		Name: "replay", Metric: "replay_of_first", Rounds: 3,
		Runs:  entries("operate:replay"),
		Goals: []report.Goal{{Of: "operate:replay", Metric: "replay_of_first", Op: ">=", Want: 1}},
	},
	{
		Name: "idle with 10,000 schedules", Metric: "core_percent", Rounds: 1,
		Runs:  entries("operate:schedules"),
		Goals: []report.Goal{atMost("operate:schedules", "core_percent", 1)},
	},
}

func quietLog(dsn string) *slog.Logger {
	return host.NewLogger(os.Stderr, "json", slog.LevelError, dsn)
}

// pooled is latency:pgmill with the host behind a pooler; who emits is not.
func pooled(ctx context.Context, r *lab.Run) error {
	c := courier{open: func(ctx context.Context, dsn string, _ *pgxpool.Pool, handled func(int)) (putFunc, func(), error) {
		bouncer, err := pgbouncer.New(dsn, 20)
		if err != nil {
			return nil, nil, err
		}
		through, err := bouncer.Through(dsn)
		if err != nil {
			return nil, nil, err
		}
		if err := bouncer.Start(); err != nil {
			return nil, nil, err
		}
		registry := platform.NewRegistry()
		if err := registry.Add(orders(handled)); err != nil {
			return nil, bouncer.Kill, err
		}
		w := &host.Worker{Database: through, Registry: registry, Log: quietLog(dsn)}
		if r.Param("direct") > 0 {
			w.ListenURL = dsn
		}
		stop, err := startWorker(ctx, w)
		if err != nil {
			bouncer.Kill()
			return nil, nil, err
		}
		return putOrder, func() { stop(); bouncer.Kill() }, nil
	}}
	return c.steady(ctx, r)
}

// retention submits jobs at an even rate, and deletes old ones in the second half. What
// is left of them then is deleted without traffic.
func retention(ctx context.Context, r *lab.Run) error {
	rate := r.Param("rate")
	warm, half := 2*rate, rate*r.Param("secs")
	h := lab.NewHandover(warm + 2*half)
	c := courier{open: openJob}
	return c.with(ctx, r, h, func(send func(context.Context, int) error) error {
		dsn, err := r.DSN()
		if err != nil {
			return err
		}
		pool, err := lab.Pool(ctx, dsn, 1, fillSession)
		if err != nil {
			return err
		}
		defer pool.Close()
		if _, err := pool.Exec(ctx, `insert into pgmill.job (id, topic, state, trace_id, updated_at)
			select 'old-' || i, 'job.old', 'SUCCEEDED', 't', now() - interval '30 days' + i * interval '0.1 s' from generate_series(1, $1) i`, r.N()); err != nil {
			return err
		}
		for _, q := range []string{"vacuum analyze pgmill.job", "checkpoint", "insert into pgmill.function (name, kind, module, listens) values ('bench.jobs', 'cleanup', 'bench', '{}')"} {
			if _, err := pool.Exec(ctx, q); err != nil {
				return err
			}
		}
		var cleaning sync.WaitGroup
		var cleaned error
		began := sync.OnceFunc(func() { cleaning.Go(func() { cleaned = cleanOld(ctx, dsn, r) }) })
		err = h.Steady(ctx, r, rate, warm, func(ctx context.Context, i int) error {
			if i >= warm+half {
				began()
			}
			return send(ctx, i)
		})
		cleaning.Wait()
		if err != nil || cleaned != nil {
			return errors.Join(err, cleaned)
		}
		before, beside := h.Latencies(warm, warm+half, 1), h.Latencies(warm+half, warm+2*half, 1)
		r.Percentiles("before_", before)
		r.Percentiles("beside_", beside)
		r.Set("p99_of_before", float64(lab.Quantile(beside, 0.99))/float64(lab.Quantile(before, 0.99)))
		return nil
	})
}

// cleanOld is a clean-up's ticks until nothing is left.
func cleanOld(ctx context.Context, dsn string, r *lab.Run) error {
	pool, err := lab.Pool(ctx, dsn, 1, nil)
	if err != nil {
		return err
	}
	defer pool.Close()
	registry := platform.NewRegistry()
	if err := registry.Add(platform.Cleanup{Name: "bench.jobs", Rule: platform.Rule{Class: "jobs", Keep: 7 * 24 * time.Hour}}); err != nil {
		return err
	}
	began, rows := time.Now(), 0
	var batches []time.Duration
	last := began
	e := &cleanup.Engine{Cleanups: platform.Of[platform.Cleanup](registry), Pool: pool, Log: quietLog(dsn), Deleted: func(_ string, n int) {
		rows, batches, last = rows+n, append(batches, time.Since(last)), time.Now()
	}}
	if err := e.Declare(ctx); err != nil {
		return err
	}
	for before := -1; before < rows; {
		before, last = rows, time.Now()
		if err := e.Clean(ctx, e.Cleanups[0]); err != nil {
			return err
		}
	}
	if rows < r.N() {
		return fmt.Errorf("%d of %d old jobs were deleted", rows, r.N())
	}
	r.Percentiles("batch_", batches)
	r.Set("longest_batch_s", lab.Quantile(batches, 1).Seconds())
	r.Set("deleted_per_s", float64(rows)/time.Since(began).Seconds())
	return nil
}

// replay is the rate of a replay, and how much that is of the rate before.
func replay(ctx context.Context, r *lab.Run) error {
	dsn, f, stop, err := caughtUp(ctx, r, "bench.replay")
	if err != nil {
		return err
	}
	defer stop()
	first := float64(f.events) / f.elapsed.Seconds()
	f.events, f.elapsed, f.gaps = 0, 0, nil // nobody calls: all is handled
	f.expect(r.N())
	if err := once(ctx, dsn, "select mill.move_subscription('bench.replay', 'zero')"); err != nil {
		return err
	}
	if err := f.wait(ctx); err != nil {
		return err
	}
	r.Set("first_rate", first)
	r.Set("replay_of_first", float64(f.events)/f.elapsed.Seconds()/first)
	return f.report(r)
}

// schedules is what a host does for schedules of which none is due.
func schedules(ctx context.Context, r *lab.Run) error {
	dsn, err := migrated(ctx, r)
	if err != nil {
		return err
	}
	registry := platform.NewRegistry()
	for i := range r.N() {
		err := registry.Add(platform.Schedule{Name: fmt.Sprint("bench.s", i), Cron: "0 0 29 2 *", Owners: platform.OwnedBy("bench"),
			Handle: func(context.Context, pgx.Tx, platform.Tick) error { return nil }})
		if err != nil {
			return err
		}
	}
	stop, err := startWorker(ctx, &host.Worker{Database: dsn, Registry: registry, Log: quietLog(dsn)})
	if err != nil {
		return err
	}
	defer stop()
	if err := rest(ctx, 10*time.Second); err != nil {
		return err
	}
	secs := float64(r.Param("secs"))
	cpu := lab.ProcessCPU(os.Getpid())
	r.Start()
	if err := rest(ctx, time.Duration(secs)*time.Second); err != nil {
		return err
	}
	cpu = lab.ProcessCPU(os.Getpid()) - cpu
	r.Stop()
	r.Set("core_percent", 100*cpu/secs)
	r.Set("rss_mb", rssMB())
	return nil
}

// orders is a subscription that hands on the numbers of what was placed.
func orders(handled func(int)) platform.Subscription {
	sub := bench("bench.latency", ordersPlaced)
	sub.Handle = func(_ context.Context, _ pgx.Tx, e platform.Event) error {
		o, err := platform.Data[order](e)
		if err == nil {
			handled(o.Order)
		}
		return err
	}
	return sub
}

func putOrder(ctx context.Context, tx pgx.Tx, i int) error {
	_, err := platform.Emit(ctx, tx, placed(i))
	return err
}
