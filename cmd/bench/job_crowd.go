package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/cmd/bench/internal/lab"
	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/host"
)

// crowdScenarios are jobs that get in each other's way.
var crowdScenarios = []lab.Scenario{
	{Name: "job:flood", Note: "99 scopes submit ten jobs of 5 ms each, while another has big of them waiting: p99 from submit to start",
		Defaults: map[string]int{"big": 100_000, "slots": 100}, Run: flood},
	{Name: "process:killed", Note: "kill -9 of a host with n running jobs, until another may claim all of them",
		Defaults: map[string]int{"n": 5_000}, Run: killed},
}

// flood is what those with few jobs wait for beside one with many.
func flood(ctx context.Context, r *lab.Run) error {
	const small = 990
	const submit = `select count(*) from mill.submit_jobs((select jsonb_agg(jsonb_build_object('topic', $1::text, 'scope', format($2::text, n % $3::int), 'input', $5::jsonb)) from generate_series(1, $4::int) n))`
	dsn, pool, err := opened(ctx, r, 2)
	if err != nil {
		return err
	}
	defer pool.Close()
	for left := r.Param("big"); left > 0; left -= 10_000 {
		if _, err := pool.Exec(ctx, submit, benchTopic, "org:big%s", 1, min(left, 10_000), `{}`); err != nil {
			return err
		}
	}
	f := &flow{}
	f.expect(small)
	registry := platform.NewRegistry()
	if err := registry.Add(platform.Step[json.RawMessage, json.RawMessage]{Topic: benchTopic, Run: func(ctx context.Context, _ *platform.Attempt, in json.RawMessage) (json.RawMessage, error) {
		if len(in) > len(`{}`) {
			f.call(1)
		}
		return nil, rest(ctx, 5*time.Millisecond)
	}}); err != nil {
		return err
	}
	stop, err := startWorker(ctx, &host.Worker{Database: dsn, Registry: registry, MaxJobs: r.Param("slots"), Log: host.NewLogger(os.Stderr, "json", slog.LevelWarn, dsn)})
	if err != nil {
		return err
	}
	defer stop()
	if err := rest(ctx, 2*time.Second); err != nil { // the flood is on
		return err
	}
	r.Start()
	if _, err := pool.Exec(ctx, submit, benchTopic, "org:%s", 99, small, `{"small": true}`); err != nil {
		return err
	}
	if err := f.wait(ctx); err != nil {
		return err
	}
	r.Ops = small
	r.Stop()
	if err := becomes(ctx, pool, `select count(*) = $1 from pgmill.job where scope like 'org:%' and scope not like 'org:big%' and state = 'SUCCEEDED'`, small); err != nil {
		return err
	}
	var p50, p99 float64
	err = pool.QueryRow(ctx, `select percentile_cont(0.5) within group (order by w), percentile_cont(0.99) within group (order by w)
		from (select 1000 * extract(epoch from started_at - created_at)::float8 as w from pgmill.job where scope not like 'org:big%') x`).Scan(&p50, &p99)
	r.Set("small_p50_ms", p50)
	r.Set("small_p99_ms", p99)
	return err
}

// killed is how long the jobs of a killed host are nobody's.
func killed(ctx context.Context, r *lab.Run) error {
	dsn, pool, err := opened(ctx, r, 2)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := withModules(ctx, dsn); err != nil {
		return err
	}
	first, err := serve(ctx, dsn, fmt.Sprint("PGMILL_MAX_JOBS=", r.N()))
	if err != nil {
		return err
	}
	defer first.stop() //nolint:errcheck // it is dead
	if _, err := pool.Exec(ctx, `select count(*) from mill.submit_jobs((select jsonb_agg(jsonb_build_object('topic', 'job.demo.sleep', 'input', '{"ms": 600000}'::jsonb)) from generate_series(1, $1::int)))`, r.N()); err != nil {
		return err
	}
	if err := becomes(ctx, pool, `select count(*) = $1 from pgmill.river_job where queue = 'job' and state = 'running'`, r.N()); err != nil {
		return err
	}
	second, err := serve(ctx, dsn, "PGMILL_MAX_JOBS=1")
	if err != nil {
		return err
	}
	defer second.stop()                               //nolint:errcheck // how it stops is for startup to say
	if err := rest(ctx, 12*time.Second); err != nil { // its lease has been unbroken for one ttl
		return err
	}
	r.Start()
	began := time.Now()
	if err := first.cmd.Process.Kill(); err != nil {
		return err
	}
	if err := becomes(ctx, pool, `select count(*) <= 1 from pgmill.river_job where queue = 'job' and state = 'running'`); err != nil {
		return err
	}
	r.Ops = r.N()
	r.Stop()
	r.Set("claimable_s", time.Since(began).Seconds())
	return nil
}

// becomes asks until the answer is true, for two minutes.
func becomes(ctx context.Context, pool *pgxpool.Pool, query string, args ...any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Minute, fmt.Errorf("never true: %s", query))
	defer cancel()
	for {
		var is bool
		if err := pool.QueryRow(ctx, query, args...).Scan(&is); err != nil {
			return err
		}
		if is {
			return nil
		}
		if rest(ctx, 10*time.Millisecond) != nil {
			return context.Cause(ctx)
		}
	}
}
