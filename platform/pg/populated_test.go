package pg_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/migrations"
	"github.com/pgmill/pgmill/platform/pg"
	"github.com/pgmill/pgmill/platform/platformtest"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

// jobsVersion is the migration with which jobs came: a release of then is where these
// tests come from.
const jobsVersion = 6

// leftBehind is what such a release may have left: events with and without their positions, a
// subscription on its way, and jobs that wait, rest, run with a host that is gone, and
// have ended well and badly. Two transactions: a step's snapshot sees the events.
var leftBehind = []string{`
	create table pgmill.log_0 partition of pgmill.log for values from (0) to (5000000);
	alter table pgmill.log_0 add check (pos >= 0 and pos < 5000000);
	insert into pgmill.event (type, target, key) select 'order.placed', 'o-' || i, 'k-' || i % 7 from generate_series(1, 300) i;
	insert into pgmill.log (pos, event_id, at, key_hash, target_hash, type) select e.id, e.id, e.emitted_at, hashtext(e.key), hashtext(e.target), e.type from pgmill.event e;
	insert into pgmill.event_key (scope, type, key, event_id, body) values ('install', 'order.placed', 'once', 1, '\x00');
	insert into pgmill.instance (kind, id, ttl, last_seen) values ('worker', 'gone', '10 s', now() - interval '1 hour');
	insert into pgmill.function (name, kind, module, listens) values ('t.sub', 'subscription', 't', '{order.*}'), ('job.fill', 'step', 'fill', '{job.fill}');
	insert into pgmill.subscription (name, likes, order_by, shards, batch, max_attempts, on_poison, replayable, timeout) values ('t.sub', '{order.%}', 'key', 1, 10, 3, 'park', true, '30 s');
	insert into pgmill.shard (subscription, shard) values ('t.sub', 0);
	insert into pgmill.cursor (subscription, shard, n, pos) values ('t.sub', 0, 1, 100);
	insert into pgmill.topic (name, function, max_attempts, max_runtime, backoff, backoff_max) values ('job.fill', 'job.fill', 3, '1 min', '1 s', '1 min');
	insert into pgmill.job (id, topic, trace_id, input) select kind || '-' || i, 'job.fill', 't', jsonb_build_object('i', i) from unnest('{waits,rests,runs}'::text[]) kind, generate_series(1, 200) i where kind <> 'runs' or i <= 5;
	insert into pgmill.job (id, topic, trace_id, state, reason, attempt, finished_at, output) select 'done-' || i, 'job.fill', 't', 'SUCCEEDED', null, 1, now(), '{}' from generate_series(1, 500) i;
	insert into pgmill.job (id, topic, trace_id, state, reason, attempt, finished_at) select 'dead-' || i, 'job.fill', 't', 'FAILED', 'handler_error', 3, now() from generate_series(1, 20) i;
	insert into pgmill.dead_letter (job, scope, topic, state, reason, attempts, trace_id) select j.id, j.scope, j.topic, j.state, j.reason, j.attempt, j.trace_id from pgmill.job j where j.state = 'FAILED';
	insert into pgmill.job_attempt (job, attempt, instance, reason) select j.id, a, 'gone', 'handler_error' from pgmill.job j, generate_series(1, 2) a where j.state = 'FAILED';
	insert into pgmill.job_waiting (job, topic, priority, demand, scope, seq, cost, attempt, due_at)
	select j.id, j.topic, 1, '', 'install', nextval('pgmill.job_seq'), 1, 1, case when j.id like 'rests-%' then now() + interval '1 day' end from pgmill.job j where j.id ~ '^(waits|rests)-';
	insert into pgmill.lane (topic, priority, demand, scope, n, low) values ('job.fill', 1, '', 'install', 1, 1);
	insert into pgmill.river_job (state, attempt, attempted_at, attempted_by, args, kind, queue, max_attempts, unique_key, unique_states)
	select 'running', 1, now(), '{gone}', jsonb_build_object('job', j.id, 'attempt', 1, 'scope', j.scope), j.topic, 'job', 1, ('job:' || j.id)::bytea, b'01000001' from pgmill.job j where j.id like 'runs-%';
	insert into pgmill.job_key (scope, key, job, body) values ('install', 'once', 'done-1', '\x00');
	insert into pgmill.job_unique (scope, topic, key, job) values ('install', 'job.fill', 'one', 'waits-1');
	insert into pgmill.scope_limit (scope, max_running) values ('org:a', 5);
	insert into pgmill.document (name, version, body) values ('pools', 1, '{}')`,
	`insert into pgmill.step (k, base, last, after_id, cluster) select 1, pg_current_snapshot(), 300, 0, s.cluster from pgmill.step s;
	insert into pgmill.event (type, target) select 'order.placed', 'late-' || i from generate_series(1, 10) i`}

// populated is a database of that release with what it left.
func populated(t *testing.T) (dsn string, pool *pgxpool.Pool) {
	t.Helper()
	dsn = pgtest.Database(t, func(ctx context.Context, dsn string) error {
		if err := pg.MigrateTo(ctx, dsn, jobsVersion); err != nil {
			return err
		}
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		for _, some := range leftBehind {
			if _, err = conn.Exec(ctx, some); err != nil {
				return err
			}
		}
		return nil
	}, strings.Join(leftBehind, ""))
	return dsn, open(t, dsn)
}

// rowsOf is a query for a line a table, with what its rows are in the columns that it has
// now.
func rowsOf(t *testing.T, db db) string {
	t.Helper()
	return `select string_agg(x, E'\n' order by x) from (` + ask[string](t, db, `
		select string_agg(format($$select format('rows of %1$s: %%s, %%s', count(*), md5(string_agg(x::text, ' ' order by x::text))) from (select %2$s from pgmill.%1$I) x$$, c.relname, a.columns), ' union all ')
		  from pg_class c cross join lateral (select string_agg(quote_ident(attname), ', ' order by attnum) as columns from pg_attribute where attrelid = c.oid and attnum > 0 and not attisdropped) a
		 where c.relnamespace = 'pgmill'::regnamespace and c.relkind in ('r', 'p') and c.relname <> all ('{goose_db_version,river_migration,build,log_0,log_1,log_2,log_3,log_default}')`) + `) y (x)`
}

const broken = `select coalesce(string_agg(indexrelid::regclass::text, ' '), '') from pg_index where not (indisvalid and indisready)`

// X10, F79: an older release's database goes up with all that is in it, at once or one by
// one, to what a new one is; its jobs and events go on. So it does when a migrator is
// killed where no transaction takes back what it did: in an index that is built or
// dropped beside traffic, and in the next try at that.
func TestMigrateAPopulatedDatabaseOfAnOlderRelease(t *testing.T) {
	t.Parallel()
	fresh, one := empty(t)
	migrate(t, fresh)
	want := fingerprint(t, one)
	names, err := fs.Glob(migrations.FS, "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	newest := int64(len(names))
	dsn, first := populated(t)
	old := rowsOf(t, first)
	before := ask[string](t, first, old)
	migrate(t, dsn)
	all := rowsOf(t, first)
	after := ask[string](t, first, all)

	same := func(t *testing.T, pool *pgxpool.Pool) {
		t.Helper()
		sameFingerprint(t, "schema", fingerprint(t, pool), want)
		sameFingerprint(t, "what was there", ask[string](t, pool, old), before)
		sameFingerprint(t, "all rows", ask[string](t, pool, all), after)
		if got := ask[string](t, pool, broken); got != "" {
			t.Errorf("half made: %s", got)
		}
		must(t, pool, `insert into pgmill.instance (kind, id, ttl) values ('worker', 'new', '1 h')`)
		if got := ask[string](t, pool, `select string_agg(job, ' ') from pgmill.admit('new', '{job.fill}', 3)`); got != "waits-1 waits-2 waits-3" {
			t.Errorf("admitted: %s", got)
		}
		if n := ask[int](t, pool, `select pgmill.advance()`); n != 10 {
			t.Errorf("advance = %d, want the ten events without a position", n)
		}
		must(t, pool, `select mill.cancel('waits-9'), mill.cancel('rests-9'), mill.retry_dead_letter('dead-9')`)
		platformtest.Invariants(t, pool)
	}
	t.Run("at once", func(t *testing.T) { same(t, first) })
	t.Run("one by one", func(t *testing.T) {
		t.Parallel()
		dsn, pool := populated(t)
		for v := int64(jobsVersion + 1); v <= newest; v++ {
			if err := pg.MigrateTo(t.Context(), dsn, v); err != nil {
				t.Fatal(err)
			}
			sameFingerprint(t, names[v-1], ask[string](t, pool, old), before)
		}
		migrate(t, dsn)
		same(t, pool)
	})
	for _, tt := range []struct {
		from   int64  // the last migration that was done
		locked string // the table that somebody works on meanwhile
		killed []string
	}{
		{9, "river_job", []string{"drop index concurrently if exists pgmill.river_job_args_index"}},
		{11, "job_waiting", []string{"create index concurrently if not exists job_waiting_again", "reindex index concurrently pgmill.job_waiting_again"}},
		{12, "job_waiting", []string{"drop index concurrently if exists pgmill.job_waiting_since"}},
		{13, "job", []string{"create index concurrently if not exists job_by_time", "reindex index concurrently pgmill.job_by_time"}},
	} {
		t.Run("killed in "+names[tt.from], func(t *testing.T) {
			t.Parallel()
			dsn, pool := populated(t)
			if err := pg.MigrateTo(t.Context(), dsn, tt.from); err != nil {
				t.Fatal(err)
			}
			worker := session(t, dsn)
			must(t, worker, `lock table pgmill.`+tt.locked+` in row exclusive mode`)
			for _, statement := range tt.killed {
				killMigrator(t, dsn, pool, statement)
				if ask[string](t, pool, broken) == "" {
					t.Errorf("nothing is half made after a kill in %s: the test is blunt", statement)
				}
			}
			must(t, worker, "commit")
			migrate(t, dsn)
			same(t, pool)
		})
	}
}

// killMigrator kills a migrator, and its session, while a statement of its waits.
func killMigrator(t *testing.T, dsn string, pool *pgxpool.Pool, statement string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), migratorEnv+"="+dsn)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	const waits = `select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and strpos(query, $1) > 0`
	until(t, "it waits in "+statement, func() bool { return ask[int](t, pool, waits, statement) > 0 })
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	must(t, pool, strings.Replace(waits, "count(*)", "pg_terminate_backend(pid)", 1), statement)
	until(t, "its sessions are gone", func() bool {
		return ask[int](t, pool, `select count(*) from pg_locks where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())`)+ask[int](t, pool, waits, statement) == 0
	})
}
