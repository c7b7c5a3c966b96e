package cleanup_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/cleanup"
	"github.com/pgmill/pgmill/platform/platformtest"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

// keptTables are the tables that no clean-up may touch, and why.
var keptTables = map[string]string{
	"event": "canonical", "log": "canonical", "step": "canonical: advance prunes it", "audit": "audit",
	"cursor": "active cursors", "shard": "active cursors", "subscription": "active cursors", "reshard": "not terminal",
	"parked_key": "not terminal", "parked_event": "not terminal",
	"job_waiting": "not terminal", "job_lease": "not terminal", "job_cancel": "not terminal", "job_unique": "not terminal", "lane": "not terminal", "topic_rate": "prunes itself", "claim_floor": "prunes itself",
	"topic": "declared", "scope_limit": "declared", "pool": "declared", "pool_topic": "declared", "topic_timeout": "declared", "document": "declared", "module": "declared",
	"function": "declared", "schedule": "declared", "retention": "declared",
	"archive": "the archive's", "build": "migrations", "goose_db_version": "migrations", "river_migration": "migrations", "epoch": "the server's life",
	"river_job": "claims: not terminal", "river_leader": "River's", "river_queue": "River's", "river_client": "River's", "river_client_queue": "River's", "river_notification": "River's",
}

// N81: the role that clean-ups run as may delete what a class names and nothing else.
// A table that is in neither list has to be put into one.
func TestCleanupRoleCannotDeleteWhatIsCanonical(t *testing.T) {
	t.Parallel()
	dsn := platformtest.DSN(t)
	pool := platformtest.Pool(t, dsn)
	tables := ask[[]string](t, pool, `select array_agg(c.relname::text order by 1) from pg_class c
		where c.relnamespace = 'pgmill'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition`)
	classes := ask[[]string](t, pool, `select array_agg(distinct tbl order by tbl) from pgmill.cleanup_classes()`)
	role := pgtest.Session(t, dsn)
	must(t, role, `set local role pgmill_cleanup`)
	for _, table := range append(tables, "log_default", "log_0") {
		must(t, role, `savepoint s`)
		_, err := role.Exec(t.Context(), `delete from pgmill.`+table)
		must(t, role, `rollback to s`)
		in := slices.Contains(classes, table)
		switch {
		case in && err != nil:
			t.Errorf("a class has table %s, and clean-ups cannot delete from it: %v", table, err)
		case in && keptTables[table] != "":
			t.Errorf("table %s is kept (%s), and a class has it", table, keptTables[table])
		case !in && code(err) != "42501":
			t.Errorf("deleting from %s as pgmill_cleanup = %v, want 42501", table, err)
		case !in && keptTables[table] == "" && !strings.HasPrefix(table, "log_"):
			t.Errorf("table %s is new: put it into a class of pgmill.cleanup_classes, or into the list of what is kept", table)
		}
		for _, q := range []string{`truncate pgmill.%s`, `drop table pgmill.%s`} {
			must(t, role, `savepoint s`)
			if _, err := role.Exec(t.Context(), fmt.Sprintf(q, table)); code(err) != "42501" {
				t.Errorf(q+" = %v, want 42501", table, err)
			}
			must(t, role, `rollback to s`)
		}
	}
	must(t, role, `reset role`)
	must(t, role, `set local role mill_cleaner`)
	for _, table := range tables { // not even what a class has: that has no condition there
		must(t, role, `savepoint s`)
		if _, err := role.Exec(t.Context(), `delete from pgmill.`+table); code(err) != "42501" {
			t.Errorf("deleting from %s as mill_cleaner = %v, want 42501", table, err)
		}
		must(t, role, `rollback to s`)
	}
	if n := len(tables); n < 20 {
		t.Errorf("only %d tables seen", n)
	}
	if got := ask[bool](t, pool, `select bool_or(has_any_column_privilege('pgmill_cleanup', c.oid, 'insert')) from pg_class c where c.relnamespace = 'pgmill'::regnamespace and c.relkind in ('r', 'p')`); got {
		t.Error("pgmill_cleanup may insert")
	}
}

// What the code declares and what the database bears are the same.
func TestBuiltinsAreClasses(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	seen := map[string]bool{}
	for _, c := range cleanup.Builtin() {
		if err := platform.NewRegistry().Add(c); err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
		seen[c.Rule.Class] = true
		if least := ask[time.Duration](t, pool, `select max(at_least) from pgmill.cleanup_classes() where class = $1`, c.Rule.Class); least != c.Rule.AtLeast {
			t.Errorf("%s: AtLeast is %v, the class's %v", c.Name, c.Rule.AtLeast, least)
		}
	}
	for _, class := range ask[[]string](t, pool, `select array_agg(distinct class) from pgmill.cleanup_classes()`) {
		if !seen[class] {
			t.Errorf("no clean-up of pgmill's own cleans class %s", class)
		}
	}
}

// N78, N81, N82: whatever rows there are and whatever rules say, clean-ups delete exactly
// what is terminal, old enough and of their scope; nothing canonical changes, and a job
// that has not ended is there whatever its age.
func TestCleanupsDeleteNothingElse(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	emit(t, pool, 5)
	subscribe(t, pool, "t.one")
	none := func() {
		b := &pgx.Batch{}
		for _, table := range []string{"event_key", "instance", "instance_function", "river_job", "job", "job_attempt", "job_progress", "dead_letter", "blob", "job_key"} {
			b.Queue("delete from pgmill." + table)
		}
		send(t, pool, b)
	}
	defer none()
	const canonical = `select md5(string_agg(x, '|')) from (
		select e::text as x from pgmill.event e union all select l::text from pgmill.log l union all select c::text from pgmill.cursor c
		union all select a::text from pgmill.audit a union all select s::text from pgmill.shard s union all select j::text from pgmill.river_job j
		union all select j::text from pgmill.job j where state in ('PENDING', 'APPROVAL_REQUIRED') order by 1) q`
	deadline := time.Now().Add(5 * time.Second)
	rapid.Check(t, func(r *rapid.T) {
		if time.Now().After(deadline) {
			return // what was tried by then must do
		}
		days := rapid.IntRange(7, 15).Draw(r, "keep")
		scope := rapid.SampledFrom([]string{"install", "provider", "org:a", "org:*"}).Draw(r, "of")
		var cleanups []platform.Cleanup
		var classes []string
		for i, class := range []string{"idempotency_keys", "jobs", "dead_letters", "blobs", "job_keys", "instances"} { // jobs while their dead letters are there
			if class == "instances" && strings.HasPrefix(scope, "org:") || rapid.IntRange(0, 3).Draw(r, class) == 0 {
				continue
			}
			classes = append(classes, class)
			cleanups = append(cleanups, platform.Cleanup{Name: fmt.Sprint("t.clean", i), Scope: platform.Scope(scope),
				Rule: platform.Rule{Class: class, Keep: time.Duration(days) * 24 * time.Hour, Batch: rapid.IntRange(1, 5).Draw(r, "batch")}})
		}
		none()
		send(t, pool, leftovers(r, scope, days))
		want := ask[string](t, pool, left(scope, days, classes...))
		before := ask[string](t, pool, canonical)
		e, _ := engine(t, pool, nil, cleanups...)
		clean(t, e)
		if got := ask[string](t, pool, left("", 0)); got != want {
			r.Fatalf("scope %s, classes %v, %d days: left\n%s, want\n%s", scope, classes, days, got, want)
		}
		if after := ask[string](t, pool, canonical); after != before {
			r.Fatal("something canonical changed")
		}
	})
}

func send(t *testing.T, pool *pgxpool.Pool, b *pgx.Batch) {
	t.Helper()
	if err := pool.SendBatch(t.Context(), b).Close(); err != nil {
		t.Fatal(err)
	}
}

// leftovers are rows of every class's tables, of any scope and state, up to 20 days old;
// many are of the scope that is cleaned, and about as old as what goes.
func leftovers(r *rapid.T, cleaned string, days int) *pgx.Batch {
	b := &pgx.Batch{}
	scopes := []string{"install", "provider", "org:a", "org:b"}
	scope := func(of []string) string {
		if slices.Contains(of, cleaned) && rapid.Bool().Draw(r, "cleaned") {
			return cleaned
		}
		return rapid.SampledFrom(of).Draw(r, "scope")
	}
	hours := func() int {
		if rapid.Bool().Draw(r, "near") {
			return 24*days + rapid.IntRange(-2, 2).Draw(r, "after")
		}
		return rapid.IntRange(0, 24*20).Draw(r, "age")
	}
	for i := range rapid.IntRange(0, 8).Draw(r, "keys") {
		b.Queue(`insert into pgmill.event_key (scope, type, key, event_id, body, at) values ($1, 't', $2, 1, '', now() - $3 * interval '1 hour')`, scope(scopes), fmt.Sprint(i), hours())
		b.Queue(`insert into pgmill.job_key (scope, key, job, body, at) values ($1, $2, 'j0', '', now() - $3 * interval '1 hour')`, scope(scopes), fmt.Sprint(i), hours())
		b.Queue(`insert into pgmill.blob (id, kind, scope, content_type, size, sha256, expires_at, bytes) values ('art' || $2, 'art', $1, 'x/y', 0, '', now() - $3 * interval '1 hour', '')`,
			scope(scopes), fmt.Sprint(i), hours())
	}
	for i := range rapid.IntRange(0, 6).Draw(r, "instances") {
		id := fmt.Sprint("i", i)
		b.Queue(`insert into pgmill.instance (kind, id, ttl, since, last_seen, scope) values ('worker', $1, '10 s', now() - interval '20 days', now() - $2 * interval '1 hour', $3)`, id, hours(), scope(scopes[:2]))
		if rapid.Bool().Draw(r, "functions") {
			b.Queue(`insert into pgmill.instance_function values ($1, 't.one'), ($1, 't.two')`, id)
		}
		if rapid.Bool().Draw(r, "claims") {
			b.Queue(`insert into pgmill.river_job (args, kind, queue, max_attempts, state, attempted_by, attempted_at) values ('{}', 'k', 'subscription', 1, 'running', array[$1], now())`, id)
		}
	}
	for i := range rapid.IntRange(0, 12).Draw(r, "jobs") {
		id, of := fmt.Sprint("j", i), scope(scopes)
		state := rapid.SampledFrom([]string{"PENDING", "APPROVAL_REQUIRED", "SUCCEEDED", "FAILED", "CANCELLED", "TIMEOUT", "DENIED"}).Draw(r, "state")
		b.Queue(`insert into pgmill.job (id, scope, topic, state, trace_id, updated_at) values ($1, $2, 'job.x', $3, 't', now() - $4 * interval '1 hour')`, id, of, state, hours())
		if rapid.Bool().Draw(r, "attempts") {
			b.Queue(`insert into pgmill.job_attempt (job, attempt, reason) values ($1, 1, 'x.y'), ($1, 2, 'x.y')`, id)
		}
		if rapid.Bool().Draw(r, "progress") {
			b.Queue(`insert into pgmill.job_progress (job, percent) values ($1, 50)`, id)
		}
		switch some := rapid.Bool().Draw(r, "more"); {
		case some && state == "SUCCEEDED":
			b.Queue(`update pgmill.job set output_blob = 'of-' || id where id = $1`, id)
			b.Queue(`insert into pgmill.blob (id, kind, scope, job, content_type, size, sha256, created_at, bytes) values ('of-' || $1, 'res', $2, $1, 'x/y', 0, '', now() - interval '90 days', '')`, id, of)
		case some && (state == "FAILED" || state == "TIMEOUT" || state == "DENIED"):
			b.Queue(`insert into pgmill.dead_letter (job, scope, topic, state, reason, attempts, died_at) values ($1, $2, 'job.x', $3, 'x.y', 2, now() - $4 * interval '1 hour')`, id, of, state, hours())
		}
	}
	return b
}

// left asks for what leftovers made and clean-ups of these classes in a scope ought to
// leave, said without the classes' own words.
func left(scope string, days int, classes ...string) string {
	of := func(class, condition string) string {
		if !slices.Contains(classes, class) {
			return "false"
		}
		return fmt.Sprintf(`(x.scope = '%[1]s' or '%[1]s' = 'org:*' and x.scope like 'org:%%') and `, scope) + strings.ReplaceAll(condition, "$keep", fmt.Sprintf("now() - interval '%d days'", days))
	}
	ended := of("jobs", `x.updated_at < $keep and x.state in ('SUCCEEDED', 'FAILED', 'CANCELLED', 'TIMEOUT', 'DENIED')`)
	jobs := ended + ` and not exists (select from pgmill.dead_letter d where d.job = x.id)` // which may be retried
	gone := of("instances", `x.last_seen < $keep and not exists (select from pgmill.river_job c where c.attempted_by = array[x.id])`)
	var all []string
	for _, t := range []struct{ id, table, goes string }{
		{"key", "event_key", of("idempotency_keys", `x.at < $keep - interval '1 hour'`)},
		{"key", "job_key", of("job_keys", `x.at < $keep - interval '1 hour'`)},
		{"job", "dead_letter", of("dead_letters", `x.died_at < $keep`)},
		{"id", "blob", of("blobs", `x.expires_at < $keep`) + ` or x.job in (select x.id from pgmill.job x where ` + jobs + `)`},
		{"id", "job", jobs},
		{"job || '/' || attempt", "job_attempt", `x.job in (select x.id from pgmill.job x where ` + jobs + `)`},
		{"job", "job_progress", `x.job in (select x.id from pgmill.job x where ` + ended + `)`},
		{"id", "instance", gone},
		{"instance || '/' || function", "instance_function", `x.instance in (select x.id from pgmill.instance x where ` + gone + `)`},
	} {
		all = append(all, fmt.Sprintf(`select '%[1]s ' || x.%[2]s as row from pgmill.%[1]s x where (%[3]s) is not true`, t.table, t.id, t.goes))
	}
	return `select coalesce(string_agg(row, ', ' order by row), '') from (` + strings.Join(all, " union all ") + `) q`
}
