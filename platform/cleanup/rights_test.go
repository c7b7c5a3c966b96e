package cleanup_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

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

// N78, N81, N82: whatever rows there are and whatever a rule says, a clean-up deletes
// exactly what is terminal, old enough and of its scope; nothing canonical changes.
func TestCleanupsDeleteNothingElse(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	emit(t, pool, 5)
	subscribe(t, pool, "t.one")
	scopes := []string{"install", "provider", "org:a", "org:b"}
	const canonical = `select md5(string_agg(x, '|')) from (
		select e::text as x from pgmill.event e union all select l::text from pgmill.log l union all select c::text from pgmill.cursor c
		union all select a::text from pgmill.audit a union all select s::text from pgmill.shard s union all select j::text from pgmill.river_job j order by 1) q`
	deadline := time.Now().Add(5 * time.Second)
	rapid.Check(t, func(r *rapid.T) {
		if time.Now().After(deadline) {
			return // what was tried by then must do
		}
		must(t, pool, `truncate pgmill.event_key, pgmill.instance, pgmill.instance_function; delete from pgmill.river_job`)
		for i := range rapid.IntRange(0, 12).Draw(r, "keys") {
			must(t, pool, `insert into pgmill.event_key (scope, type, key, event_id, body, at) values ($1, 't', $2, 1, '', now() - $3 * interval '1 hour')`,
				rapid.SampledFrom(scopes).Draw(r, "scope"), fmt.Sprint(i), rapid.IntRange(0, 24*20).Draw(r, "age")+0)
		}
		for i := range rapid.IntRange(0, 8).Draw(r, "instances") {
			id := fmt.Sprint("i", i)
			must(t, pool, `insert into pgmill.instance (kind, id, ttl, since, last_seen, scope) values ('worker', $1, '10 s', now() - interval '20 days', now() - $2 * interval '1 hour', $3)`,
				id, rapid.IntRange(0, 24*20).Draw(r, "seen"), rapid.SampledFrom(scopes[:2]).Draw(r, "scope"))
			if rapid.Bool().Draw(r, "functions") {
				must(t, pool, `insert into pgmill.instance_function values ($1, 't.one'), ($1, 't.two')`, id)
			}
			if rapid.Bool().Draw(r, "claims") {
				must(t, pool, `insert into pgmill.river_job (args, kind, queue, max_attempts, state, attempted_by, attempted_at) values ('{}', 'k', 'subscription', 1, 'running', array[$1], now())`, id)
			}
		}
		days := rapid.IntRange(7, 15).Draw(r, "keep")
		scope := rapid.SampledFrom(append(scopes, "org:*")).Draw(r, "of")
		c := platform.Cleanup{Name: "t.clean", Scope: platform.Scope(scope), Rule: platform.Rule{Class: "idempotency_keys", Keep: time.Duration(days) * 24 * time.Hour, Batch: rapid.IntRange(1, 4).Draw(r, "batch")}}
		if scope == "install" || scope == "provider" {
			c.Rule.Class = rapid.SampledFrom([]string{"idempotency_keys", "instances"}).Draw(r, "class")
		}
		// What ought to be left, said without the classes.
		keyGoes := fmt.Sprintf(`(scope = '%[1]s' or '%[1]s' = 'org:*' and scope like 'org:%%') and at < now() - interval '%[2]d days 1 hour' and '%[3]s' = 'idempotency_keys'`, scope, days, c.Rule.Class)
		instanceGoes := fmt.Sprintf(`scope = '%s' and last_seen < now() - interval '%d days' and '%s' = 'instances' and not exists (select from pgmill.river_job j where attempted_by = array[i.id])`, scope, days, c.Rule.Class)
		want := ask[string](t, pool, fmt.Sprintf(`select concat_ws(' ', (select string_agg(key, ',' order by key) from pgmill.event_key where not (%s)),
			(select string_agg(id, ',' order by id) from pgmill.instance i where not (%s)),
			(select count(*) from pgmill.instance_function f where not exists (select from pgmill.instance i where i.id = f.instance and %s)))`, keyGoes, instanceGoes, instanceGoes))
		before := ask[string](t, pool, canonical)
		e, _ := engine(t, pool, nil, c)
		clean(t, e)
		got := ask[string](t, pool, `select concat_ws(' ', (select string_agg(key, ',' order by key) from pgmill.event_key), (select string_agg(id, ',' order by id) from pgmill.instance), (select count(*) from pgmill.instance_function))`)
		if got != want {
			r.Fatalf("scope %s, class %s, %d days: left %q, want %q", scope, c.Rule.Class, days, got, want)
		}
		if after := ask[string](t, pool, canonical); after != before {
			r.Fatal("something canonical changed")
		}
	})
	must(t, pool, `delete from pgmill.river_job`)
}
