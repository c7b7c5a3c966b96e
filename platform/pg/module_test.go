package pg_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/pg"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

// module is a registered module with migrations 0001, 0002, … of these statements.
func module(t *testing.T, name string, migrations ...string) platform.Module {
	t.Helper()
	files := fstest.MapFS{}
	for i, sql := range migrations {
		files[fmt.Sprintf("migrations/%04d_m.sql", i+1)] = &fstest.MapFile{Data: []byte("-- +goose Up\n" + sql + ";\n")}
	}
	return registered(t, platform.Module{Name: name, Migrations: files})[0]
}

func registered(t *testing.T, modules ...platform.Module) []platform.Module {
	t.Helper()
	reg := platform.NewRegistry()
	for _, m := range modules {
		if err := reg.Add(m); err != nil {
			t.Fatal(err)
		}
	}
	return reg.Modules()
}

const stockTables = `
create table stock.item (id bigint generated always as identity primary key, name text not null);
create view stock.names as select name from stock.item;
-- +goose StatementBegin
create function stock.add(name text) returns bigint language sql security definer set search_path = pg_catalog, pg_temp
as $$ insert into stock.item (name) values (add.name) returning id $$;
-- +goose StatementEnd
-- +goose StatementBegin
create function stock.meddle() returns void language sql security definer set search_path = pg_catalog, pg_temp
as $$ insert into billing.bill (item) values (0) $$;
-- +goose StatementEnd
select 1`

const billingTables = `create table billing.bill (item bigint)`

func stockAndBilling(t *testing.T) []platform.Module {
	t.Helper()
	return []platform.Module{module(t, "billing", billingTables), module(t, "stock", stockTables)}
}

func migrateWith(t *testing.T, dsn string, modules ...platform.Module) []pg.Change {
	t.Helper()
	done, err := pg.Migrate(t.Context(), dsn, nil, modules...)
	if err != nil {
		t.Fatalf("Migrate: %v", err)
	}
	return done
}

// N39: a module's role has what is in its own schema, emits, uses other modules' seams
// and reads views; everything else is refused. So are its own definer functions.
func TestAModulesRoleHasItsOwnSchemaOnly(t *testing.T) {
	t.Parallel()
	dsn, pool := empty(t)
	migrateWith(t, dsn, stockAndBilling(t)...)
	_, as := newRole(t, dsn, "pgmill_runtime")
	tests := []struct{ role, sql, code string }{
		{"mill_module_stock", `insert into stock.item (name) values ('a'); update stock.item set name = 'b'; select * from stock.names`, ""},
		{"mill_module_stock", `delete from stock.item`, ""},
		{"mill_module_stock", `select mill.emit('stock.changed', 'item-1'); insert into mill.outbox (type, target) values ('a', 't'); select * from mill.subscriptions`, ""},
		{"mill_module_stock", `insert into billing.bill values (1)`, "42501"},
		{"mill_module_stock", `select * from billing.bill`, "42501"},
		{"mill_module_stock", `select stock.meddle()`, "42501"}, // a seam has its module's rights
		{"mill_module_stock", `update pgmill.shard set attempts = 0`, "42501"},
		{"mill_module_stock", `delete from pgmill.event`, "42501"},
		{"mill_module_stock", `select pgmill.advance()`, "42501"},
		{"mill_module_stock", `select mill.pause_subscription('a')`, "42501"},
		{"mill_module_stock", `create table stock.other ()`, "42501"},
		{"mill_module_stock", `drop table stock.item`, "42501"},
		{"mill_module_stock", `truncate stock.item`, "42501"},
		{"mill_module_stock", `delete from stock.goose_db_version`, "42501"},
		{"mill_module_billing", `insert into stock.item (name) values ('a')`, "42501"},
		{"mill_module_billing", `insert into billing.bill select stock.add('seam')`, ""},
		{"mill_module_billing", `select * from stock.names`, ""},
		{"none", `insert into stock.item (name) values ('a')`, "42501"}, // the host itself, before it has become the module
		{"none", `select * from stock.item`, "42501"},
		{"none", `select stock.add('a')`, "42501"},
	}
	for _, tt := range tests {
		conn := session(t, as)
		must(t, conn, "set local role "+tt.role)
		if _, err := conn.Exec(t.Context(), tt.sql); code(err) != tt.code {
			t.Errorf("%s as %s = %v; want SQLSTATE %q", tt.sql, tt.role, err, tt.code)
		}
		must(t, conn, "rollback")
	}
	if _, reader := newRole(t, dsn, "mill_reader"); ask[int](t, open(t, reader), `select count(*) from stock.names`) != 0 {
		t.Error("a reader sees rows that nobody wrote")
	}
	if got := ask[string](t, pool, `select string_agg(name || ' ' || role || ' ' || version, ', ' order by name) from mill.modules`); got != "billing mill_module_billing 1, stock mill_module_stock 1" {
		t.Errorf("mill.modules = %s", got)
	}
	if got := ask[string](t, pool, `select coalesce(string_agg(p.oid::regprocedure::text, ' '), '') from pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
		where p.prosecdef and p.pronamespace = 'stock'::regnamespace and a.grantee = 0`); got != "" {
		t.Errorf("PUBLIC may execute %s", got)
	}
}

func code(err error) string {
	var pe interface{ SQLState() string }
	if errors.As(err, &pe) {
		return pe.SQLState()
	}
	return ""
}

// X10, F79: the plan says what is done, five migrators at once do it once, a second
// time there is nothing to do, and a new migration goes forward with the rows kept.
func TestModulesAreMigratedByFiveAtOnceAndForward(t *testing.T) {
	t.Parallel()
	dsn, pool := empty(t)
	modules := stockAndBilling(t)
	before, err := pg.Plan(t.Context(), dsn, nil, modules...)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	applied := map[string]int{}
	for range 5 {
		all.Go(func() {
			done, err := pg.Migrate(t.Context(), dsn, nil, modules...)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Errorf("Migrate: %v", err)
			}
			for _, c := range done {
				applied[fmt.Sprint(c.Part, c.Version, c.Name)]++
			}
		})
	}
	all.Wait()
	for _, c := range before {
		if n := applied[fmt.Sprint(c.Part, c.Version, c.Name)]; c.Applied || n != 1 {
			t.Errorf("%+v was planned and applied %d times", c, n)
		}
	}
	if len(applied) != len(before) {
		t.Errorf("%d changes were applied, %d planned", len(applied), len(before))
	}
	if again := migrateWith(t, dsn, modules...); len(again) != 0 {
		t.Errorf("a sixth migrator applied %v", again)
	}
	must(t, pool, `insert into stock.item (name) values ('kept')`)
	modules[1] = module(t, "stock", stockTables, `alter table stock.item add column size int not null default 1`)
	if err := pg.CheckModules(t.Context(), pool, modules); !errors.Is(err, pg.ErrNotMigrated) || !strings.Contains(err.Error(), "module stock") {
		t.Errorf("CheckModules before the new migration = %v", err)
	}
	if done := migrateWith(t, dsn, modules...); len(done) != 2 || done[0].Version != 2 || done[0].Part != "stock" {
		t.Errorf("the new migration applied %v", done)
	}
	if got := ask[string](t, pool, `select name || size from stock.item`); got != "kept1" {
		t.Errorf("the row is %s", got)
	}
	if err := pg.CheckModules(t.Context(), pool, modules); err != nil {
		t.Errorf("CheckModules = %v", err)
	}
	if err := pg.CheckModules(t.Context(), pool, stockAndBilling(t)); err != nil {
		t.Errorf("CheckModules of an older build = %v; it can go on", err)
	}
}

// F79: of two branches' migrations the one that comes late needs a higher number.
func TestAModulesMigrationBeforeOneThatIsAppliedIsRefused(t *testing.T) {
	t.Parallel()
	dsn, _ := empty(t)
	file := func(sql string) *fstest.MapFile { return &fstest.MapFile{Data: []byte("-- +goose Up\n" + sql + ";\n")} }
	files := fstest.MapFS{"0002_b.sql": file(`create table late.b ()`)}
	migrateWith(t, dsn, registered(t, platform.Module{Name: "late", Migrations: files})...)
	files["0001_a.sql"] = file(`create table late.a ()`)
	_, err := pg.Migrate(t.Context(), dsn, nil, registered(t, platform.Module{Name: "late", Migrations: files})...)
	if err == nil || !strings.Contains(err.Error(), "module late: give the new migration a number above") {
		t.Errorf("Migrate = %v; want it refused with what to do", err)
	}
}

// What a migration does that a module must not is refused, and said.
func TestModulesThatCannotBeMigrated(t *testing.T) {
	t.Parallel()
	dsn, pool := empty(t)
	migrate(t, dsn)
	for _, tt := range []struct{ name, module, sql, want string }{
		{"a seam whose search_path is the caller's", "loose", `create function loose.f() returns int language sql security definer as 'select 1'`, "must fix its search_path"},
		{"a name that SQL reserves", "order", `select 1`, "SQL reserves this word"},
		{"a statement that fails", "broken", `create table broken.t (a int); insert into broken.t values ('x')`, "module broken: "},
	} {
		m := module(t, tt.module, tt.sql)
		if _, err := pg.Migrate(t.Context(), dsn, nil, m); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: Migrate = %v; want %q", tt.name, err, tt.want)
		}
		if err := pg.CheckModules(t.Context(), pool, []platform.Module{m}); !errors.Is(err, pg.ErrNotMigrated) {
			t.Errorf("%s: CheckModules = %v; want ErrNotMigrated", tt.name, err)
		}
	}
	if ask[bool](t, pool, `select to_regclass('broken.t') is not null`) {
		t.Error("half of a migration stayed")
	}
}

// F77: a module's migration gives up behind a long reader, too.
func TestAModulesMigrationGivesUpBehindALongReader(t *testing.T) {
	t.Parallel()
	dsn, _ := empty(t)
	migrateWith(t, dsn, stockAndBilling(t)...)
	reader := session(t, dsn)
	must(t, reader, `select count(*) from stock.item`)
	next := module(t, "stock", stockTables, `alter table stock.item add column size int`)
	if _, err := pg.Migrate(t.Context(), dsn, nil, next); !errors.Is(err, pg.ErrBusy) {
		t.Errorf("Migrate = %v; want ErrBusy", err)
	}
	must(t, reader, "commit")
	migrateWith(t, dsn, next)
}

// What a restore without privileges loses is told, and brought back.
func TestAModulesRightsAreBroughtBack(t *testing.T) {
	t.Parallel()
	dsn, pool := empty(t)
	modules := stockAndBilling(t)
	migrateWith(t, dsn, modules...)
	const rights = `select string_agg(what, ' ' order by what) from (
		select c.relname || c.relacl::text from pg_class c where c.relnamespace = 'stock'::regnamespace and c.relacl is not null and not starts_with(c.relname, 'goose')
		union all select p.proname || p.proacl::text || p.proowner::regrole from pg_proc p where p.pronamespace = 'stock'::regnamespace
		union all select nspacl::text from pg_namespace where nspname = 'stock') x(what)`
	want := ask[string](t, pool, rights)
	must(t, pool, `do $$ begin execute format('reassign owned by mill_module_stock to %I', current_user); end $$;
		revoke all on schema stock from mill_module_stock, mill_module, mill_reader;
		revoke all on all tables in schema stock from mill_module_stock, mill_module, mill_reader;
		revoke all on all functions in schema stock from mill_module, mill_module_stock; grant execute on all functions in schema stock to public`)
	if err := pg.CheckModules(t.Context(), pool, modules); !errors.Is(err, pg.ErrNotMigrated) {
		t.Errorf("CheckModules = %v; want ErrNotMigrated", err)
	}
	if done := migrateWith(t, dsn, modules...); len(done) != 1 || done[0].Part != "stock" {
		t.Errorf("Migrate applied %v; want stock's rights", done)
	}
	if got := ask[string](t, pool, rights); got != want {
		t.Errorf("rights are\n%s\nwant\n%s", got, want)
	}
}

var statements = regexp.MustCompile("run `([^`]+)`")

// A role that owns the database and may not make roles, as with some managed services,
// is told the statements for somebody who may; after them it can migrate.
func TestAModuleWithoutTheRightToMakeRoles(t *testing.T) {
	t.Parallel()
	dsn, pool := empty(t)
	migrate(t, dsn) // the cluster has pgmill's roles
	owner, as := newRole(t, dsn)
	mine := pgtest.Database(t, nil, "")
	must(t, open(t, mine), `do $$ begin execute format('alter database %I owner to `+owner+`', current_database()); end $$`)
	t.Cleanup(func() { // before the owner is dropped
		conn, err := pgx.Connect(context.Background(), mine)
		if err == nil {
			_, err = conn.Exec(context.Background(), `reassign owned by `+owner+` to current_user`)
			_ = conn.Close(context.Background())
		}
		if err != nil {
			t.Error(err)
		}
	})
	as = strings.Replace(as, databaseOf(t, dsn), databaseOf(t, mine), 1)
	name := "m" + strings.TrimPrefix(owner, "pgmill_test_") // the cluster has no role for it
	t.Cleanup(func() { dropRole(t, mine, "mill_module_"+name) })
	m := module(t, name, `create table `+name+`.t (a int)`,
		"-- +goose StatementBegin\ncreate function "+name+".f() returns void language sql security definer set search_path = pg_catalog, pg_temp as $$ insert into "+name+".t values (1) $$;\n-- +goose StatementEnd\nselect 1")
	_, err := pg.Migrate(t.Context(), as, nil, m)
	said := statements.FindStringSubmatch(fmt.Sprint(err))
	if said == nil || !strings.Contains(said[1], "create role mill_module_"+name) {
		t.Fatalf("Migrate without CREATEROLE = %v; want the statements", err)
	}
	must(t, pool, said[1])
	migrateWith(t, as, m)
	host := open(t, as)
	if err := pg.CheckModules(t.Context(), host, []platform.Module{m}); err != nil {
		t.Errorf("CheckModules after the statements = %v", err)
	}
	if got := ask[int](t, host, `select count(*) from `+name+`.t`); got != 0 {
		t.Error("rows from nowhere")
	}
}

func databaseOf(t *testing.T, dsn string) string {
	t.Helper()
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return cfg.Database
}

func dropRole(t *testing.T, dsn, role string) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), dsn)
	if err == nil {
		_, err = conn.Exec(context.Background(), "drop owned by "+role+"; drop role "+role)
		_ = conn.Close(context.Background())
	}
	if err != nil {
		t.Errorf("drop %s: %v", role, err)
	}
}

// A host whose role cannot become a module's is told the grant, and it is enough.
func TestCheckModulesNamesTheMissingGrant(t *testing.T) {
	t.Parallel()
	dsn, pool := empty(t)
	modules := stockAndBilling(t)
	migrateWith(t, dsn, modules...)
	_, as := newRole(t, dsn, "mill_reader")
	must(t, pool, `grant usage on schema pgmill to public; grant execute on all functions in schema pgmill to public; grant select on pgmill.module to public`)
	poor := open(t, as)
	err := pg.CheckModules(t.Context(), poor, modules)
	said := grant.FindStringSubmatch(fmt.Sprint(err))
	if !errors.Is(err, pg.ErrGrantMissing) || said == nil {
		t.Fatalf("CheckModules = %v; want the GRANT", err)
	}
	must(t, pool, said[1])
	if err := pg.CheckModules(t.Context(), poor, modules); err != nil {
		t.Errorf("CheckModules after the GRANT = %v", err)
	}
	if got, err := pg.UnknownModules(t.Context(), poor, modules[:1]); err != nil || fmt.Sprint(got) != "[stock]" {
		t.Errorf("UnknownModules = %v, %v; want stock", got, err)
	}
}
