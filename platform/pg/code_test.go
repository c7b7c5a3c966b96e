package pg_test

import (
	"strings"
	"testing"

	"github.com/pgmill/pgmill/platform/pg"
)

// X10, and DESIGN 8: an older build never puts an older view back; a build of the
// same release that differs does (it is somebody's work in progress).
func TestCodeOfANewerBuildStays(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		ordinal int
		hash    string
		stays   bool
	}{
		{"a newer build's", pg.Ordinal + 1, "newer", true},
		{"this build's", pg.Ordinal, pg.CodeHash(), true},
		{"another of this release", pg.Ordinal, "another", false},
		{"an older build's", pg.Ordinal - 1, "older", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dsn, pool := empty(t)
			migrate(t, dsn)
			must(t, pool, `update pgmill.build set ordinal = $1, hash = $2`, tt.ordinal, tt.hash)
			must(t, pool, `comment on view mill.events is 'as the other build left it'`)
			done := migrate(t, dsn)
			stayed := ask[bool](t, pool, `select obj_description('mill.events'::regclass, 'pg_class') = 'as the other build left it'`)
			if stayed != tt.stays || (len(done) == 0) != tt.stays {
				t.Errorf("Migrate over code of build %d %q applied %v; its view stayed: %v, want %v", tt.ordinal, tt.hash, done, stayed, tt.stays)
			}
			if err := pg.Check(t.Context(), pool); err != nil {
				t.Errorf("Check = %v", err)
			}
			want := tt.ordinal
			if !tt.stays {
				want = pg.Ordinal
			}
			if got := ask[int](t, pool, `select ordinal from pgmill.build`); got != want {
				t.Errorf("the build's ordinal is %d, want %d", got, want)
			}
		})
	}
}

// A new column at the end of a view is all a newer build may add: this build's hosts
// read on.
func TestCodeWithMoreColumnsServesThisBuild(t *testing.T) {
	t.Parallel()
	dsn, pool := empty(t)
	migrate(t, dsn)
	def := strings.TrimSuffix(ask[string](t, pool, `select pg_get_viewdef('mill.audit'::regclass)`), ";")
	must(t, pool, `create or replace view mill.audit as select x.*, 1 as newer from (`+def+`) x`)
	must(t, pool, `update pgmill.build set ordinal = ordinal + 1, hash = 'newer'`)
	migrate(t, dsn)
	if n := ask[int](t, pool, `select count(newer) from mill.audit`); n != 0 {
		t.Errorf("%d audit rows", n)
	}
}

// DESIGN 8: what a database's catalogue says about our code.
func TestCodeKeepsItsRules(t *testing.T) {
	t.Parallel()
	dsn, pool := empty(t)
	migrate(t, dsn)
	tests := []struct{ name, query string }{
		{"each view and function of the contract has a comment", `
			select c.oid::regclass::text from pg_class c where c.relnamespace = 'mill'::regnamespace and c.relkind = 'v' and obj_description(c.oid, 'pg_class') is null
			union all
			select p.oid::regprocedure::text from pg_proc p where p.pronamespace = 'mill'::regnamespace and obj_description(p.oid, 'pg_proc') is null`},
		{"PUBLIC may execute nothing", `
			select p.oid::regprocedure::text from pg_proc p cross join lateral aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
			 where p.pronamespace in ('mill'::regnamespace, 'pgmill'::regnamespace) and a.grantee = 0
			   and p.oid not in (select tgfoid from pg_trigger)`},
		{"PUBLIC may read and write nothing", `
			select c.oid::regclass::text from pg_class c cross join lateral aclexplode(c.relacl) a
			 where c.relnamespace in ('mill'::regnamespace, 'pgmill'::regnamespace) and a.grantee = 0`},
		{"functions with their owner's rights fix their search_path", `
			select p.oid::regprocedure::text from pg_proc p
			 where p.pronamespace in ('mill'::regnamespace, 'pgmill'::regnamespace) and p.prosecdef
			   and not exists (select from unnest(p.proconfig) c where c in ('search_path=pg_catalog, pg_temp'))`},
		{"no reader sees a payload", `
			select c.oid::regclass || '.' || a.attname from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
			 where c.relnamespace = 'mill'::regnamespace and c.relkind = 'v' and a.attname in ('data', 'payload', 'input', 'output', 'error', 'errors')
			   and has_column_privilege('mill_reader', c.oid, a.attnum, 'select')`},
		{"readers read no private table", `
			select c.oid::regclass::text from pg_class c
			 where c.relnamespace = 'pgmill'::regnamespace and c.relkind in ('r', 'p') and has_any_column_privilege('mill_reader', c.oid, 'select')`},
		{"the runtime role has DML only", `
			select c.oid::regclass::text from pg_class c
			 where c.relnamespace in ('mill'::regnamespace, 'pgmill'::regnamespace) and c.relkind in ('r', 'p', 'v') and has_table_privilege('pgmill_runtime', c.oid, 'truncate, trigger, references')
			union all
			select nspname from pg_namespace where nspname in ('mill', 'pgmill') and has_schema_privilege('pgmill_runtime', oid, 'create')`},
		{"the runtime role rewrites no history", `
			select c.oid::regclass::text from pg_class c
			 where c.oid in ('pgmill.event'::regclass, 'pgmill.log'::regclass, 'pgmill.audit'::regclass) and has_any_column_privilege('pgmill_runtime', c.oid, 'update')
			    or c.oid in ('pgmill.event'::regclass, 'pgmill.log'::regclass, 'pgmill.audit'::regclass) and has_table_privilege('pgmill_runtime', c.oid, 'delete')`},
		{"scope and trace_id are on every table that is somebody's", `
			select t from unnest(array['event', 'subscription', 'shard', 'parked_event', 'audit', 'function', 'instance', 'schedule', 'module']) t
			 where (select count(*) from pg_attribute a where a.attrelid = ('pgmill.' || t)::regclass and a.attname in ('scope', 'trace_id')) <> 2`},
	}
	for _, tt := range tests {
		if got := ask[[]string](t, pool, `select coalesce(array_agg(x order by 1), '{}') from (`+tt.query+`) q(x)`); len(got) > 0 {
			t.Errorf("%s, but %q", tt.name, got)
		}
	}
}
