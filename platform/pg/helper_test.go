package pg_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/platform/pg"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

// migratorEnv makes the test binary a process that migrates the database of a DSN.
const migratorEnv = "PGMILL_TEST_MIGRATOR"

func init() {
	if dsn := os.Getenv(migratorEnv); dsn != "" {
		if _, err := pg.Migrate(context.Background(), dsn, nil); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// empty is a database with nothing in it.
func empty(t *testing.T) (dsn string, pool *pgxpool.Pool) {
	t.Helper()
	dsn = pgtest.Database(t, nil, "")
	return dsn, open(t, dsn)
}

func migrate(t *testing.T, dsn string) []pg.Change {
	t.Helper()
	done, err := pg.Migrate(t.Context(), dsn, nil)
	if err != nil {
		t.Fatalf("Migrate: %v", err)
	}
	return done
}

func open(t *testing.T, dsn string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	pgtest.Pooled(config.ConnConfig)
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

type db = pgtest.DB

func must(t testing.TB, db db, query string, args ...any) {
	t.Helper()
	pgtest.Exec(t, db, query, args...)
}

func ask[T any](t testing.TB, db db, query string, args ...any) T {
	t.Helper()
	return pgtest.Ask[T](t, db, query, args...)
}

func session(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	return pgtest.Session(t, dsn)
}

func newRole(t *testing.T, dsn string, groups ...string) (role, as string) {
	t.Helper()
	return pgtest.Role(t, dsn, groups...)
}

// until waits for something to become true, 30 s at the most.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	late := time.After(30 * time.Second)
	for !ok() {
		select {
		case <-look.C:
		case <-late:
			t.Fatalf("waited too long until %s", what)
		}
	}
}

// fingerprint is everything that a migration makes: tables, columns, indexes,
// constraints, functions, views, comments and rights.
func fingerprint(t *testing.T, db db) string {
	t.Helper()
	return ask[string](t, db, `
		select string_agg(replace(what, E'\n', ' '), E'\n' order by what) from (
		  select format('column %s.%s %s %s %s %s %s', c.oid::regclass, a.attname, a.attnum, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
		                pg_get_expr(d.adbin, d.adrelid)) as what
		    from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
		    left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
		   where c.relnamespace in ('pgmill'::regnamespace, 'mill'::regnamespace)
		  union all
		  select format('relation %s %s %s %s %s', c.oid::regclass, c.relkind, c.reloptions, (select array_agg(a::text order by a::text) from unnest(coalesce(c.relacl, acldefault('r', c.relowner))) a), obj_description(c.oid, 'pg_class'))
		    from pg_class c where c.relnamespace in ('pgmill'::regnamespace, 'mill'::regnamespace)
		  union all
		  select format('index %s', pg_get_indexdef(i.indexrelid)) from pg_index i join pg_class c on c.oid = i.indexrelid where c.relnamespace = 'pgmill'::regnamespace
		  union all
		  select format('constraint %s %s %s', conrelid::regclass, conname, pg_get_constraintdef(oid)) from pg_constraint where connamespace = 'pgmill'::regnamespace
		  union all
		  select format('routine %s %s', pg_get_functiondef(oid), (select array_agg(a::text order by a::text) from unnest(proacl) a)) from pg_proc where pronamespace in ('pgmill'::regnamespace, 'mill'::regnamespace) and prokind in ('f', 'p')
		  union all
		  select format('view %s', pg_get_viewdef(oid)) from pg_class where relnamespace = 'mill'::regnamespace and relkind = 'v'
		  union all
		  select format('enum %s %s', t.typname, e.enumlabel) from pg_enum e join pg_type t on t.oid = e.enumtypid where t.typnamespace = 'pgmill'::regnamespace
		  union all
		  select format('trigger %s', pg_get_triggerdef(oid)) from pg_trigger where not tgisinternal
		  union all
		  select format('migration %s', version_id) from pgmill.goose_db_version where is_applied
		  union all
		  select format('river %s %s', line, version) from pgmill.river_migration
		  union all
		  select format('build %s %s', ordinal, hash) from pgmill.build) x`)
}
