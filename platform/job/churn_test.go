package job_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/cleanup"
	"github.com/pgmill/pgmill/platform/platformtest"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

// F44 in its long form: somebody holds an old snapshot while jobs come and end and old
// ones are deleted, so that nothing of it can be vacuumed. Jobs start as fast at the end
// as at the start, no batch of the clean-up takes a second, it is shown who holds what
// back, and for how long; when the holder is gone the dead rows go. PGMILL_SOAK=1: 500 jobs a second for
// twenty minutes, a million old ones; here a hundred for a few seconds, and 20,000.
func TestF44OldSnapshotDoesNotSlowJobsAndCleanups(t *testing.T) {
	t.Parallel()
	quarter, every, old, within := 2*time.Second, 10*time.Millisecond, 20_000, 5*time.Second // whoever else uses the machine
	soaking := os.Getenv("PGMILL_SOAK") != ""
	if soaking {
		quarter, every, old, within = 5*time.Minute, 2*time.Millisecond, 1_000_000, time.Second
	}
	w := newWorld(t)
	w.exec(`insert into pgmill.job (id, topic, state, trace_id, updated_at)
		select 'old-' || i, 'job.old', 'SUCCEEDED', 't', now() - interval '8 days' - i * interval '1 s' from generate_series(1, $1) i`, old)
	w.exec(`analyze`)
	w.host(platform.Step[none, none]{Topic: "job.f44", Run: func(context.Context, *platform.Attempt, none) (none, error) { return none{}, nil }},
		platform.Cleanup{Name: "test.jobs", Cron: "@yearly", Rule: platform.Rule{Class: "jobs", Keep: 7 * 24 * time.Hour}})
	holder, err := w.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Rollback(context.Background())
	var opened time.Time
	var pid, xid int64
	if err := holder.QueryRow(t.Context(), `select now(), pg_backend_pid(), pg_current_xact_id()::text::bigint`).Scan(&opened, &pid, &xid); err != nil { // a writer, too
		t.Fatal(err)
	}

	var group sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer group.Wait()
	defer stop()
	group.Go(func() {
		for tick := time.NewTicker(every); ctx.Err() == nil; <-tick.C {
			if _, err := w.pool.Exec(ctx, `select mill.submit_job('job.f44')`); err != nil && ctx.Err() == nil {
				t.Errorf("submit: %v", err)
			}
		}
	})
	longest := make(chan time.Duration, 1)
	group.Go(func() { longest <- w.cleanAll(ctx, "test.jobs") })
	p99 := make([]float64, 4)
	for i := range p99 {
		from := ask[time.Time](w, `select clock_timestamp()`)
		<-time.After(quarter)
		p99[i] = ask[float64](w, `select percentile_cont(0.99) within group (order by extract(epoch from started_at - created_at)::float8) from pgmill.job
			where topic = 'job.f44' and state = 'SUCCEEDED' and created_at > $1`, from)
	}
	took := <-longest
	t.Logf("p99 from submit to start in each quarter: %.3f s; longest batch of the clean-up %v", p99, took.Round(time.Millisecond))
	if p99[3] > 3*p99[0]+0.1 {
		t.Errorf("p99 went from %.3f s to %.3f s", p99[0], p99[3])
	}
	if soaking && p99[3] >= 0.25 {
		t.Errorf("p99 is %.3f s at the end, want below 250 ms", p99[3])
	}
	if took > within {
		t.Errorf("a batch of the clean-up took %v", took)
	}
	if left := ask[int](w, `select count(*) from pgmill.job where topic = 'job.old'`); left != 0 {
		t.Errorf("%d old jobs are left", left)
	}
	var held string
	if err := w.pool.QueryRow(t.Context(), `with s as materialized (select set_config('pgmill.holder_age', '1 second', false))
		select concat_ws(' ', array_to_string(h.reasons, ' '), h.counts ->> 'holder', abs((h.counts ->> 'oldest_seconds')::float8 - extract(epoch from clock_timestamp() - $1)) < 1)
		  from s cross join mill.health h where h.component = 'vacuum'`, opened).Scan(&held); err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("old_snapshot transaction pid %d t", pid); held != want {
		t.Errorf("of who holds vacuum back it is said: %q; want %q, with his age", held, want)
	}
	stop()
	group.Wait()
	platformtest.WaitFor(t, w.pool, `select count(*) = 0 from mill.jobs where state in ('PENDING', 'RUNNING')`)
	const size = `select coalesce(sum(pg_stat_get_dead_tuples(c)), 0)::bigint from unnest('{pgmill.job,pgmill.job_waiting,pgmill.lane}'::regclass[]) c`
	w.exec(`vacuum pgmill.job, pgmill.job_waiting, pgmill.lane`)
	dead := ask[int64](w, size)
	_ = holder.Rollback(t.Context())
	platformtest.WaitFor(t, w.pool, `select count(*) = 0 from pg_stat_activity where datname = current_database() and backend_xmin is not null and pid <> pg_backend_pid()`)
	w.exec(`vacuum pgmill.job, pgmill.job_waiting, pgmill.lane`)
	if got := ask[int64](w, size); got*10 > dead || dead < int64(old) {
		t.Errorf("%d dead rows under the snapshot, %d after it", dead, got)
	}
}

// F44: an admission does not read what earlier ones have left dead, which an old snapshot
// keeps: rows of its lane, of rates, claims of jobs that have ended.
func TestF44OldSnapshotDoesNotSlowAdmissions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`insert into pgmill.function (name, kind, module, listens) values ('job.f44', 'step', 'test', '{}')`)
	w.exec(`insert into pgmill.topic (name, function, max_attempts, max_runtime, backoff, backoff_max, concurrency, rate, rate_per) values ('job.f44', 'job.f44', 3, '1 min', '1 s', '1 min', 1000, 1000000, '1 s')`)
	w.exec(`insert into pgmill.instance (kind, id, ttl) values ('worker', 'f44', '1 h')`)
	w.submit("job.f44", `{}`, `{}`)
	pgtest.Exec(t, pgtest.Session(t, w.dsn, "isolation level repeatable read"), `select count(*) from pgmill.lane`)
	w.exec(`insert into pgmill.lane (topic, priority, demand, scope, n, vt, low) select l.topic, l.priority, l.demand, l.scope, i, 0, 0 from pgmill.lane l, generate_series(-50000, -1) i`)
	w.exec(`insert into pgmill.topic_rate (topic, n, tat) select 'job.f44', i, now() from generate_series(-50000, -1) i`)
	w.exec(`insert into pgmill.river_job (state, attempt, attempted_at, attempted_by, args, kind, queue, max_attempts) select 'running', 1, now(), '{f44}', '{"scope":"install"}', 'job.f44', 'job', 1 from generate_series(1, 50000)`)
	for _, table := range []string{"lane where n < 0", "topic_rate where n < 0", "river_job"} {
		w.exec(`delete from pgmill.` + table)
	}
	conn, err := w.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	most := 0
	for i := range 70 {
		w.submit("job.f44", `{}`, `{}`)
		if pages := pgtest.Fetched(t, conn.Conn(), `select count(*) from pgmill.admit('f44', '{job.f44}', 1)`); i > 3 { // the first ones mark what is dead for those behind
			most = max(most, pages)
		}
		w.exec(`select pgmill.end_claims(array_agg(id), null, null, null, array[null::jsonb]) from pgmill.river_job where state = 'running' and id > 50000`)
	}
	if most > 300 {
		t.Errorf("an admission read %d pages beside fifty thousand dead rows", most)
	}
	if n := ask[int](w, `select (select count(*) from pgmill.lane) + (select count(*) from pgmill.topic_rate)`); n > 200 {
		t.Errorf("%d rows of lanes and rates are left", n)
	}
}

// F44: nor do the ends of single jobs, in a session that made its plans when there were
// few rows.
func TestF44OldSnapshotDoesNotSlowEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`insert into pgmill.instance (kind, id, ttl) values ('worker', 'f44', '1 h')`)
	w.exec(`vacuum analyze pgmill.river_job`)
	conn, err := w.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	settled := func() int {
		t.Helper()
		w.submit("job.f44", `{}`, `{}`)
		claim := ask[int64](w, `select claim from pgmill.admit('f44', '{job.f44}', 1)`)
		return pgtest.Fetched(t, conn.Conn(), fmt.Sprintf(`select pgmill.settle_job(%d, null)`, claim))
	}
	for range 10 {
		settled()
	}
	pgtest.Exec(t, pgtest.Session(t, w.dsn, "isolation level repeatable read"), `select count(*) from pgmill.lane`)
	w.exec(`insert into pgmill.river_job (state, attempt, attempted_at, attempted_by, args, kind, queue, max_attempts) select 'running', 1, now(), '{f44}', '{"scope":"install"}', 'job.f44', 'job', 1 from generate_series(1, 50000)`)
	w.exec(`delete from pgmill.river_job`)
	if pages := settled(); pages > 100 {
		t.Errorf("the end of a job read %d pages beside fifty thousand dead claims", pages)
	}
}

// F44: nor beside a transaction that wrote something long ago, and has not to do with
// jobs; of those that have, prepared ones too, none is passed over.
func TestF44OldWriterDoesNotSlowAdmissions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`insert into pgmill.instance (kind, id, ttl) values ('worker', 'f44', '1 h')`)
	pgtest.Exec(t, pgtest.Session(t, w.dsn, "isolation level repeatable read"), `select pg_current_xact_id()`)
	conn, err := w.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	read := 0
	done := func(jobs int) {
		t.Helper()
		w.exec(`select count(*) from mill.submit_jobs((select jsonb_agg(jsonb_build_object('topic', 'job.f44')) from generate_series(1, $1::int)))`, jobs)
		for left := jobs; left > 0; left -= 100 {
			for _, statement := range []string{`select pg_stat_force_next_flush()`, `begin`, `select count(*) from pgmill.admit('f44', '{job.f44}', 100)`} {
				if _, err := conn.Exec(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
			}
			if err := conn.QueryRow(t.Context(), `select sum(pg_stat_get_xact_tuples_returned(indexrelid)) from pg_index where indrelid = 'pgmill.job_waiting'::regclass`).Scan(&read); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Exec(t.Context(), `commit`); err != nil {
				t.Fatal(err)
			}
		}
		w.exec(`select pgmill.end_claims(array_agg(id), null, null, null, array_fill(null::jsonb, array[count(*)::int])) from pgmill.river_job where state = 'running'`)
	}
	done(500)
	late, prepared := pgtest.Session(t, w.dsn), pgtest.Session(t, w.dsn)
	pgtest.Exec(t, late, `select mill.submit_job('job.f44', '{"late": 1}')`)
	pgtest.Exec(t, prepared, `select mill.submit_job('job.f44', '{"late": 2}')`)
	name := "f44 " + ask[string](w, `select current_database()`)
	pgtest.Exec(t, prepared, `prepare transaction '`+name+`'`)
	done(3000)
	pgtest.Exec(t, late, `commit`)
	done(1000)
	pgtest.Exec(t, prepared, `commit prepared '`+name+`'`)
	done(500)
	if left := ask[string](w, `select coalesce(string_agg(input ->> 'late', ' '), '') from pgmill.job where state = 'PENDING'`); left != "" {
		t.Errorf("passed over: the job of transaction %s", left)
	}
	done(2000)
	if read > 3000 {
		t.Errorf("an admission of 100 reads %d rows beside seven thousand dead ones", read)
	}
}

// cleanAll runs a clean-up tick by tick until nothing is left, and answers how long its
// longest batch took.
func (w world) cleanAll(ctx context.Context, name string) (longest time.Duration) {
	reg := platform.NewRegistry()
	if err := reg.Add(platform.Cleanup{Name: name, Rule: platform.Rule{Class: "jobs", Keep: 7 * 24 * time.Hour}}); err != nil {
		w.Error(err)
		return 0
	}
	began, rows := time.Now(), 0
	e := &cleanup.Engine{Cleanups: platform.Of[platform.Cleanup](reg), Pool: w.pool, Log: slog.New(slog.DiscardHandler), Deleted: func(_ string, n int) {
		longest, began, rows = max(longest, time.Since(began)), time.Now(), rows+n
	}}
	for before := -1; before < rows && ctx.Err() == nil; {
		before, began = rows, time.Now()
		if err := e.Clean(ctx, e.Cleanups[0]); err != nil && ctx.Err() == nil {
			w.Errorf("clean: %v", err)
		}
	}
	return longest
}

// F44: a job that is put back many times, and one that fails as often as a job may, keep
// at most a hundred rows of history. PGMILL_SOAK=1: put back two thousand times, and
// failed a hundred.
func TestF44HistoryIsBounded(t *testing.T) {
	t.Parallel()
	snoozes, fails := 30, 20
	if os.Getenv("PGMILL_SOAK") != "" {
		snoozes, fails = 2000, 100
	}
	w := newWorld(t)
	n := 0
	w.host(platform.Step[none, none]{Topic: "job.f44.snooze", Run: func(context.Context, *platform.Attempt, none) (none, error) {
		if n++; n <= snoozes {
			return none{}, platform.Snooze(time.Millisecond)
		}
		return none{}, nil
	}}, platform.Step[none, none]{Topic: "job.f44.fail", Backoff: time.Millisecond, BackoffMax: time.Millisecond, MaxAttempts: fails,
		Run: func(context.Context, *platform.Attempt, none) (none, error) { return none{}, errors.New("no") }})
	snoozed, failing := w.submit("job.f44.snooze", `{}`, `{}`), w.submit("job.f44.fail", `{}`, `{}`)
	for id, state := range map[string]string{snoozed: "SUCCEEDED", failing: "FAILED"} {
		platformtest.WaitWithin(t, w.pool, 10*time.Minute, `select exists (select from mill.jobs where id = $1 and state = $2)`, id, state)
		if got := ask[int](w, `select count(*) from pgmill.job_attempt where job = $1`, id); got >= fails {
			t.Errorf("%s: %d rows of history", state, got)
		}
	}
	if got := ask[string](w, `select concat_ws(' ', s.attempt, f.attempt) from pgmill.job s cross join pgmill.job f where s.id = $1 and f.id = $2`, snoozed, failing); got != fmt.Sprint("1 ", fails) {
		t.Errorf("attempts: %s; want those that count", got)
	}
}
