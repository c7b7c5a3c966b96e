package cleanup_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/cleanup"
	"github.com/pgmill/pgmill/platform/host"
	"github.com/pgmill/pgmill/platform/platformtest"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

func must(t testing.TB, db pgtest.DB, query string, args ...any) {
	t.Helper()
	pgtest.Exec(t, db, query, args...)
}

func ask[T any](t testing.TB, db pgtest.DB, query string, args ...any) T {
	t.Helper()
	return pgtest.Ask[T](t, db, query, args...)
}

// engine declares clean-ups as a host does and counts what they delete.
func engine(t *testing.T, pool *pgxpool.Pool, keep map[string]time.Duration, cleanups ...platform.Cleanup) (*cleanup.Engine, map[string]int) {
	t.Helper()
	reg := platform.NewRegistry()
	for _, c := range cleanups {
		if err := reg.Add(c); err != nil {
			t.Fatal(err)
		}
		must(t, pool, `insert into pgmill.function (name, kind, module, listens) values ($1, 'cleanup', 'test', '{}') on conflict do nothing`, c.Name)
	}
	deleted := map[string]int{}
	e := &cleanup.Engine{Cleanups: platform.Of[platform.Cleanup](reg), Keep: keep, Pool: pool, Log: slog.New(slog.DiscardHandler),
		Deleted: func(key string, rows int) { deleted[key] += rows }}
	if err := e.Declare(t.Context()); err != nil {
		t.Fatal(err)
	}
	return e, deleted
}

// clean runs every clean-up once.
func clean(t testing.TB, e *cleanup.Engine) {
	t.Helper()
	for _, c := range e.Cleanups {
		if err := e.Clean(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
}

// keys makes idempotency keys of an age in a scope.
func keys(t testing.TB, db pgtest.DB, scope, age string, n int) {
	t.Helper()
	must(t, db, `insert into pgmill.event_key (scope, type, key, event_id, body, at)
		select $1, 'a.b', $2::text || '-' || i, 1, '', now() - $2::text::interval from generate_series(1, $3) i`, scope, age, n)
}

// N78, N80, N82: what is old goes, in its own scope, in batches; what is not stays.
func TestCleanDeletesWhatIsOldInItsScope(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	for _, scope := range []string{"install", "provider", "org:a", "org:b"} {
		keys(t, pool, scope, "7 days 61 minutes", 25)
		keys(t, pool, scope, "7 days 59 minutes", 3) // an emitter may have begun before it was old
		keys(t, pool, scope, "1 day", 3)
	}
	rule := platform.Rule{Class: "idempotency_keys", Keep: 7 * 24 * time.Hour, Batch: 10}
	left := func() string {
		return ask[string](t, pool, `select string_agg(scope || ' ' || n, ', ' order by scope) from (select scope, count(*) as n from pgmill.event_key group by scope) s`)
	}
	for _, tt := range []struct {
		scope platform.Scope
		want  string
	}{
		{platform.Install, "install 6, org:a 31, org:b 31, provider 31"},
		{platform.Org("b"), "install 6, org:a 31, org:b 6, provider 31"},
		{platform.EachOrg, "install 6, org:a 6, org:b 6, provider 31"},
		{platform.Provider, "install 6, org:a 6, org:b 6, provider 6"},
	} {
		e, deleted := engine(t, pool, nil, platform.Cleanup{Name: "test.keys", Scope: tt.scope, Rule: rule})
		clean(t, e)
		if got := left(); got != tt.want || deleted["idempotency_keys"] != 25 {
			t.Errorf("after scope %s: %s, deleted %v; want %s, 25", tt.scope, got, deleted, tt.want)
		}
		clean(t, e)
		if got := left(); got != tt.want || deleted["idempotency_keys"] != 25 { // N82: idempotent
			t.Errorf("after scope %s again: %s, deleted %v; want %s, 25", tt.scope, got, deleted, tt.want)
		}
	}
}

// N79: processes that are gone, their functions first; a claim that waits to be rescued
// keeps its instance whatever its age.
func TestCleanInstances(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	must(t, pool, `insert into pgmill.function (name, kind, module, listens) select 'f.' || i, 'subscription', 'f', '{}' from generate_series(1, 7) i`)
	must(t, pool, `insert into pgmill.instance (kind, id, ttl, since, last_seen, deregistered_at) values
		('worker', 'live', '10 s', now() - interval '9 days', now(), null),
		('worker', 'killed', '10 s', now() - interval '9 days', now() - interval '2 days', null),
		('worker', 'left', '10 s', now() - interval '9 days', now() - interval '2 days', now() - interval '2 days'),
		('worker', 'claims', '10 s', now() - interval '9 days', now() - interval '2 days', null),
		('worker', 'lately', '10 s', now() - interval '9 days', now() - interval '23 hours', null)`)
	must(t, pool, `insert into pgmill.instance_function select i.id, f.name from pgmill.instance i, pgmill.function f`)
	must(t, pool, `insert into pgmill.river_job (args, kind, queue, max_attempts, state, attempted_by, attempted_at)
		values ('{}', 'subscription:f.1', 'subscription', 1, 'running', '{claims}', now())`)
	e, deleted := engine(t, pool, nil, platform.Cleanup{Name: "test.instances", Rule: platform.Rule{Class: "instances", Keep: 24 * time.Hour, Batch: 3}})
	preview := func() string {
		return ask[string](t, pool, `select concat_ws(' ', class, scope, rows, oldest < now() - interval '2 days', blocked_by) from mill.retention_preview where class = 'instances'`)
	}
	if got, want := preview(), "instances install 2 t no_live_host"; got != want {
		t.Errorf("preview = %s, want %s", got, want)
	}
	clean(t, e)
	left := ask[string](t, pool, `select string_agg(id || ' ' || (select count(*) from pgmill.instance_function f where f.instance = i.id), ', ' order by id) from pgmill.instance i`)
	if want := "claims 7, lately 7, live 7"; left != want || deleted["instances"] != 16 {
		t.Errorf("left %s, deleted %v; want %s, 16", left, deleted, want)
	}
	must(t, pool, `insert into pgmill.instance (kind, id, ttl, since, last_seen) values ('worker', 'host', '1 h', now(), now())`)
	must(t, pool, `insert into pgmill.instance_function values ('host', 'test.instances')`)
	if got, want := preview(), "instances install 0 claims"; got != want {
		t.Errorf("preview = %s, want %s", got, want)
	}
}

// N79: what the preview says of many rows is an estimate, near what may go: also when all
// the oldest are kept by dead letters, or those that may go have something hanging on them.
func TestPreviewOfManyRows(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	must(t, pool, `insert into pgmill.job (id, scope, topic, state, trace_id, updated_at)
		select 'job-' || i, 'org:' || i % 2, 'job.x', 'FAILED', 't', now() - interval '8 days' - i * interval '1 min' from generate_series(1, 8000) i`)
	must(t, pool, `insert into pgmill.dead_letter (job, scope, topic, state, reason, attempts) select id, scope, topic, state, 'x.y', 2 from pgmill.job where state = 'FAILED' and updated_at < now() - interval '8 days 4000 min'`)
	must(t, pool, `insert into pgmill.job_attempt (job, attempt, reason) select id, 1, 'x.y' from pgmill.job where state = 'FAILED'`)
	must(t, pool, `analyze`)
	engine(t, pool, nil, platform.Cleanup{Name: "test.jobs", Scope: platform.EachOrg, Rule: platform.Rule{Class: "jobs", Keep: 7 * 24 * time.Hour}})
	must(t, pool, `insert into pgmill.instance (kind, id, ttl) values ('worker', 'host', '1 h')`)
	must(t, pool, `insert into pgmill.instance_function values ('host', 'test.jobs')`)
	if got := ask[string](t, pool, `select string_agg(concat_ws(' ', scope, rows between 1600 and 2400, oldest < now() - interval '10 days', blocked_by), ', ') from mill.retention_preview where class = 'jobs'`); got != "org:0 t t dead_letter, org:1 t t dead_letter" {
		t.Errorf("preview = %s", got)
	}
}

// N82: a job that has not ended stays, with all that is noted of it, whatever its age.
func TestAJobThatHasNotEndedStays(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	states := []string{"PENDING", "APPROVAL_REQUIRED", "SUCCEEDED", "FAILED", "CANCELLED", "TIMEOUT", "DENIED"}
	must(t, pool, `insert into pgmill.job (id, topic, state, trace_id, updated_at) select s || i, 'job.x', s, 't', now() - interval '9 years' from unnest($1::text[]) s, generate_series(0, 1) i`, states)
	must(t, pool, `insert into pgmill.job_attempt (job, attempt, reason) select id, 1, 'x.y' from pgmill.job where id like '%1'`)
	must(t, pool, `insert into pgmill.job_progress (job, percent) select id, 50 from pgmill.job where id like '%1'`)
	e, _ := engine(t, pool, nil, cleanup.Builtin()...)
	clean(t, e)
	if got, want := ask[string](t, pool, `select (select string_agg(id, ' ' order by id) from pgmill.job) || ', ' || (select count(*) from pgmill.job_attempt) || ', ' || (select count(*) from pgmill.job_progress)`),
		"APPROVAL_REQUIRED0 APPROVAL_REQUIRED1 PENDING0 PENDING1, 2, 2"; got != want {
		t.Errorf("left are %s; want %s", got, want)
	}
	must(t, pool, `delete from pgmill.job`) // they wait nowhere
}

// N82: one cleaner at a time, by class and scope; a row that somebody has locked is
// passed over, and waits for nobody.
func TestCleanWaitsForNobody(t *testing.T) {
	t.Parallel()
	dsn := platformtest.DSN(t)
	pool := platformtest.Pool(t, dsn)
	keys(t, pool, "install", "8 days", 5)
	keys(t, pool, "provider", "8 days", 5)
	rule := platform.Rule{Class: "idempotency_keys", Keep: 7 * 24 * time.Hour}
	e, deleted := engine(t, pool, nil, platform.Cleanup{Name: "test.keys", Rule: rule}, platform.Cleanup{Name: "test.provider", Scope: platform.Provider, Rule: rule})

	emitter := pgtest.Session(t, dsn)
	must(t, emitter, `select from pgmill.event_key where key = '8 days-1' for update`)
	other := pgtest.Session(t, dsn)
	must(t, other, `select pg_advisory_xact_lock(1886219629, hashtext('idempotency_keys provider'))`)
	clean(t, e)
	if got := ask[string](t, pool, `select string_agg(scope || ' ' || key, ', ' order by scope, key) from pgmill.event_key`); got != "install 8 days-1, provider 8 days-1, provider 8 days-2, provider 8 days-3, provider 8 days-4, provider 8 days-5" {
		t.Errorf("left %s", got)
	}
	must(t, emitter, "commit")
	must(t, other, "commit")
	clean(t, e)
	if deleted["idempotency_keys"] != 10 {
		t.Errorf("deleted %v, want 10", deleted)
	}
}

// A team's own statement runs in batches, too, and by the manifest.
func TestCleanByAStatement(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	must(t, pool, `create table cart (id int generated always as identity, closed_at timestamptz)`)
	must(t, pool, `grant select, delete on cart to mill_cleaner`)
	must(t, pool, `insert into cart (closed_at) select case when i % 2 = 0 then now() - interval '3 days' end from generate_series(1, 100) i`)
	c := platform.Cleanup{Name: "shop.carts", Rule: platform.Rule{Keep: 30 * 24 * time.Hour, Batch: 7,
		Delete: `delete from cart where id in (select id from cart where closed_at < now() - $1::interval limit $2)`}}
	e, deleted := engine(t, pool, nil, c)
	clean(t, e)
	if deleted["shop.carts"] != 0 {
		t.Errorf("deleted %v by the declaration, want none", deleted)
	}
	e, deleted = engine(t, pool, map[string]time.Duration{"shop.carts": 48 * time.Hour}, c)
	clean(t, e)
	if left := ask[int](t, pool, `select count(*) from cart`); left != 50 || deleted["shop.carts"] != 50 {
		t.Errorf("%d left, deleted %v by the manifest; want 50, 50", left, deleted)
	}
}

// What a rule may not be is refused when it is declared, and again with each batch.
func TestRulesThatAreRefused(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	day := 24 * time.Hour
	for _, tt := range []struct {
		name string
		c    platform.Cleanup
		want string
	}{
		{"a class that there is not", platform.Cleanup{Rule: platform.Rule{Class: "events", Keep: day}}, "no class 'events'; there are blobs, dead_letters, idempotency_keys, instances, job_keys, jobs"},
		{"less than rows are needed for", platform.Cleanup{Rule: platform.Rule{Class: "idempotency_keys", Keep: day}}, "at least 7 days"},
		{"what an organization has not (N80)", platform.Cleanup{Scope: platform.Org("a"), Rule: platform.Rule{Class: "instances", Keep: day}}, "no rows of class instances"},
		{"what no organization has (N80)", platform.Cleanup{Scope: platform.EachOrg, Rule: platform.Rule{Class: "instances", Keep: day}}, "no rows of class instances"},
	} {
		tt.c.Name = "test.refused"
		reg := platform.NewRegistry()
		if err := reg.Add(tt.c); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		must(t, pool, `insert into pgmill.function (name, kind, module, listens) values ('test.refused', 'cleanup', 'test', '{}') on conflict do nothing`)
		e := &cleanup.Engine{Cleanups: platform.Of[platform.Cleanup](reg), Pool: pool, Log: slog.New(slog.DiscardHandler)}
		if err := e.Declare(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: Declare = %v, want %q", tt.name, err, tt.want)
		}
	}
	keys(t, pool, "install", "8 days", 5)
	e, deleted := engine(t, pool, nil, platform.Cleanup{Name: "test.keys", Rule: platform.Rule{Class: "idempotency_keys", Keep: 7 * day}})
	for _, change := range []string{`set keep = '1 minute'`, `set keep = '7 days', scope = 'org:a', class = 'instances'`, `set class = 'events', scope = 'install'`} {
		must(t, pool, `update pgmill.retention `+change)
		if err := e.Clean(t.Context(), e.Cleanups[0]); err == nil && change[4] != 's' {
			t.Errorf("after %s: Clean = nil", change)
		}
	}
	if _, err := pool.Exec(t.Context(), `select pgmill.clean('test.keys', 'install')`); code(err) != "42501" {
		t.Errorf("clean by another role = %v, want 42501", err)
	}
	if len(deleted) > 0 {
		t.Errorf("deleted %v", deleted)
	}
}

func code(err error) string {
	var pe *pgconn.PgError
	if !errors.As(err, &pe) {
		return fmt.Sprint(err)
	}
	return pe.Code
}

// A clean-up on a host: ticks, views, metrics of a schedule; the manifest counts.
func TestHostRunsCleanups(t *testing.T) {
	t.Parallel()
	dsn := platformtest.DSN(t)
	pool := platformtest.Pool(t, dsn)
	keys(t, pool, "org:a", "12 days", 2100)
	must(t, pool, "analyze pgmill.event_key") // the preview estimates what is more than a thousand
	reg := platform.NewRegistry()
	for _, c := range cleanup.Builtin() {
		if err := reg.Add(c); err != nil {
			t.Fatal(err)
		}
	}
	_, as := pgtest.Role(t, dsn, "pgmill_runtime")
	w := platformtest.HostWith(t, &host.Worker{Database: as, Registry: reg, Poll: 50 * time.Millisecond, Retention: map[string]time.Duration{"idempotency_keys": 10 * 24 * time.Hour}})
	for _, step := range []struct{ sql, want string }{
		{`select mill.pause_schedule('pgmill.clean_org_keys', 'test')`, "t paused"},
		{`select mill.resume_schedule('pgmill.clean_org_keys', 'test')`, "t"},
	} {
		must(t, pool, step.sql)
		if got := ask[string](t, pool, `select concat_ws(' ', rows > 1000, blocked_by) from mill.retention_preview where scope = 'org:a'`); got != step.want {
			t.Errorf("after %s: preview of the organization: %q, want %q", step.sql, got, step.want)
		}
	}
	if got := ask[string](t, pool, `select string_agg(kind || ' ' || live_hosts, ', ') from mill.functions where name = 'pgmill.clean_org_keys'`); got != "cleanup 1" {
		t.Errorf("mill.functions: %s", got)
	}
	platformtest.Trigger(t, pool, "pgmill.clean_org_keys")
	platformtest.WaitFor(t, pool, `select last_state = 'done' from mill.schedules where name = 'pgmill.clean_org_keys'`)
	if left := ask[int](t, pool, `select count(*) from pgmill.event_key`); left != 0 {
		t.Errorf("%d keys left", left)
	}
	if keep := ask[string](t, pool, `select string_agg(distinct keep::text, ', ') from pgmill.retention where class = 'idempotency_keys'`); keep != "240:00:00" {
		t.Errorf("keys are kept %s, want 240:00:00", keep)
	}
	platformtest.Stop(t, w)
	if got := ask[string](t, pool, `select blocked_by from mill.retention_preview where class = 'instances'`); got != "no_live_host" {
		t.Errorf("without a host: blocked by %s", got)
	}
}

func hostOf(t *testing.T, dsn string, reg *platform.Registry) {
	t.Helper()
	platformtest.HostWith(t, &host.Worker{Database: dsn, Registry: reg, Poll: 50 * time.Millisecond})
}

// C25: a job's output goes with its job and not before; what a function put goes when its
// retention is over.
func TestBlobsGoWithWhatTheyBelongTo(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	must(t, pool, `insert into pgmill.job (id, topic, state, trace_id, updated_at, output_blob)
		select x.id, 'job.x', x.state, 't', now() - x.days * interval '1 day', 'of-' || x.id from (values ('old', 'SUCCEEDED', 8), ('young', 'SUCCEEDED', 6), ('waits', 'PENDING', 9)) x(id, state, days)`)
	must(t, pool, `insert into pgmill.job_waiting (job, topic, priority, demand, scope, seq, cost, attempt, due_at) values ('waits', 'job.x', 1, '', 'install', 1, 1, 1, 'infinity')`)
	must(t, pool, `insert into pgmill.blob (id, kind, job, content_type, size, sha256, created_at, bytes) select output_blob, 'res', id, 'x/y', 0, '', now() - interval '30 days', '' from pgmill.job`)
	must(t, pool, `insert into pgmill.blob (id, kind, content_type, size, sha256, expires_at, bytes) values ('over', 'art', 'x/y', 0, '', now() - interval '2 hours', ''), ('not yet', 'art', 'x/y', 0, '', now() - interval '50 minutes', '')`)
	e, _ := engine(t, pool, nil, cleanup.Builtin()...)
	clean(t, e)
	if got, want := ask[string](t, pool, `select (select string_agg(id, ' ' order by id) from pgmill.job) || ', ' || (select string_agg(id, ' ' order by id) from pgmill.blob)`), "waits young, not yet of-waits of-young"; got != want {
		t.Errorf("left are %s; want %s", got, want)
	}
}
