package platform_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/platformtest"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

// as connects to the database of dsn as a new role that owns nothing and is a
// member of groups only.
func as(t *testing.T, dsn string, groups ...string) *pgxpool.Pool {
	t.Helper()
	_, as := pgtest.Role(t, dsn, groups...)
	return platformtest.Pool(t, as)
}

// N5, N6: the emitter's role can emit and nothing else.
func TestEmitterCanEmitAndNothingElse(t *testing.T) {
	t.Parallel()
	dsn := platformtest.DSN(t)
	emitter := as(t, dsn, "mill_emitter")
	if _, err := emitAlone(t.Context(), emitter, event(nil), once(nil)); err != nil {
		t.Errorf("Emit as mill_emitter: %v", err)
	}
	if _, err := emitAlone(t.Context(), emitter, once(nil)); err != nil {
		t.Errorf("Emit of a repeated key as mill_emitter: %v", err)
	}
	allowed := []string{}
	rows, err := emitter.Query(t.Context(), `
		select 'execute ' || p.oid::regprocedure
		  from pg_proc p join pg_namespace n on n.oid = p.pronamespace
		 where n.nspname in ('mill', 'pgmill') and has_schema_privilege(n.oid, 'usage') and has_function_privilege(p.oid, 'execute')
		union all
		select priv || ' ' || c.oid::regclass
		  from pg_class c join pg_namespace n on n.oid = c.relnamespace cross join unnest(array['select', 'insert', 'update']) priv
		 where n.nspname in ('mill', 'pgmill') and c.relkind in ('r', 'p', 'v', 'm')
		   and has_schema_privilege(n.oid, 'usage') and has_any_column_privilege(c.oid, priv)
		union all
		select priv || ' ' || c.oid::regclass
		  from pg_class c join pg_namespace n on n.oid = c.relnamespace cross join unnest(array['delete', 'truncate', 'trigger']) priv
		 where n.nspname in ('mill', 'pgmill') and c.relkind in ('r', 'p', 'v', 'm')
		   and has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, priv)
		union all
		select 'sequence ' || c.oid::regclass
		  from pg_class c join pg_namespace n on n.oid = c.relnamespace
		 where n.nspname in ('mill', 'pgmill') and has_schema_privilege(n.oid, 'usage')
		   and case when c.relkind = 'S' then has_sequence_privilege(c.oid, 'usage, select, update') end
		union all
		select 'create in ' || nspname from pg_namespace where nspname in ('mill', 'pgmill') and has_schema_privilege(oid, 'create')
		order by 1`)
	if err == nil {
		allowed, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	want := []string{"execute mill.emit(text,text,text,jsonb,text,jsonb)", "execute mill.emit_many(jsonb)",
		"execute mill.put_blob(bytea,jsonb)", "execute mill.submit_job(text,jsonb,jsonb)", "execute mill.submit_jobs(jsonb)", "insert mill.outbox", "select mill.outbox"} // of it the id only
	if err != nil || !slices.Equal(allowed, want) {
		t.Errorf("mill_emitter may %q, %v; want %q", allowed, err, want)
	}
	for _, q := range []string{
		`select * from mill.events`, `select data from mill.outbox`, `update mill.outbox set type = 'a'`, `delete from mill.outbox`, `select * from pgmill.event`, `insert into pgmill.event (type, target) values ('a', 't')`,
		`select pgmill.advance()`, `select mill.pause_subscription('a')`, `select pgmill.emit_with('a', 't', null, '{}', 'install', '{}')`,
		`select nextval('pgmill.event_id')`, `select pgmill.head()`,
	} {
		if _, err := emitter.Exec(t.Context(), q); sqlState(err) != "42501" {
			t.Errorf("%s as mill_emitter = %v; want 42501", q, err)
		}
	}
}

func TestEmitByARoleThatOwnsNothing(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		groups []string
		want   string
	}{
		{"no role at all is refused", nil, "42501"},
		{"a reader is refused", []string{"mill_reader"}, "42501"},
		{"an approver is refused", []string{"mill_approver"}, "42501"},
		{"an emitter emits", []string{"mill_emitter"}, ""},
		{"an operator emits", []string{"mill_operator"}, ""},
		{"a host emits", []string{"pgmill_runtime"}, ""},
		{"the API does what its routes do", []string{"pgmill_api"}, "42501"},
	}
	dsn := platformtest.DSN(t)
	for _, tt := range tests {
		_, err := emitAlone(t.Context(), as(t, dsn, tt.groups...), event(nil))
		if sqlState(err) != tt.want || tt.want == "" && err != nil {
			t.Errorf("%s: Emit = %v; want SQLSTATE %q", tt.name, err, tt.want)
		}
	}
}

// A business trigger emits with its own rights, and mill.emit runs with its
// owner's: nothing in the caller's search_path gets between.
func TestEmitIsNotFooledByTheSearchPath(t *testing.T) {
	t.Parallel()
	dsn := platformtest.DSN(t)
	admin := platformtest.Pool(t, dsn)
	must(t, admin, `
		create schema evil; grant usage, create on schema evil to public;
		create function evil.octet_length(text) returns int language plpgsql as $$ begin raise exception 'fooled'; end $$;
		create function evil.jsonb_typeof(jsonb) returns text language plpgsql as $$ begin raise exception 'fooled'; end $$;
		create function evil.nextval(regclass) returns bigint language plpgsql as $$ begin raise exception 'fooled'; end $$;`)
	emitter := as(t, dsn, "mill_emitter")
	err := pgx.BeginFunc(t.Context(), emitter, func(tx pgx.Tx) error {
		must(t, tx, `set local search_path = evil, pg_catalog`)
		_, err := platform.Emit(t.Context(), tx, event(nil), once(nil))
		return err
	})
	if err != nil {
		t.Errorf("Emit with a hostile search_path = %v", err)
	}
}

// N5: the short way in, which platform.Emit uses, is no way around the checks.
func TestOutboxViewRefusesWhatEmitRefuses(t *testing.T) {
	t.Parallel()
	dsn := platformtest.DSN(t)
	emitter := as(t, dsn, "mill_emitter")
	tests := []struct{ name, typ, target, key, data, scope string }{
		{"a type with upper case", "Orders", "t", "k", `{}`, "install"},
		{"an empty target", "orders", "", "k", `{}`, "install"},
		{"a long key", "orders", "t", strings.Repeat("k", 201), `{}`, "install"},
		{"a control character in a key", "orders", "t", "a\tb", `{}`, "install"},
		{"an unknown scope", "orders", "t", "k", `{}`, "tenant:7"},
		{"data that is a list", "orders", "t", "k", `[]`, "install"},
		{"data that is null", "orders", "t", "k", `null`, "install"},
		{"a long string", "orders", "t", "k", `{"s": "` + strings.Repeat("x", 257) + `"}`, "install"},
		{"a URL with a password", "orders", "t", "k", `{"s": "postgres://u:p@h/d"}`, "install"},
		{"a token", "orders", "t", "k", `{"s": "ghp_0123456789abcdefghij0123456789abcdef"}`, "install"},
		{"a password by its name", "orders", "t", "k", `{"password": "x"}`, "install"},
		{"more than 4096 bytes", "orders", "t", "k", `{"n": [1` + strings.Repeat(", 1", 1400) + `]}`, "install"},
	}
	for _, tt := range tests {
		var id int64
		err := emitter.QueryRow(t.Context(), `insert into mill.outbox (type, target, key, data, scope) values ($1, $2, $3, $4::text::jsonb, $5) returning id`,
			tt.typ, tt.target, tt.key, tt.data, tt.scope).Scan(&id)
		if state := sqlState(err); state != "44000" && !strings.HasPrefix(state, "MI00") {
			t.Errorf("%s: insert into mill.outbox = %v; want it refused", tt.name, err)
		}
	}
	nothingThere(t, platformtest.Pool(t, dsn))
}
