package subscription_test

import (
	"context"
	"fmt"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/host"
	"github.com/pgmill/pgmill/platform/platformtest"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

// twoModules are a and b, each with a table and a seam; what is written to a's is
// noted by it at the commit.
func twoModules() []platform.Module {
	both := make([]platform.Module, 2)
	for i, name := range []string{"a", "b"} {
		both[i] = platform.Module{Name: name, Migrations: fstest.MapFS{"0001_t.sql": {Data: fmt.Appendf(nil, `-- +goose Up
create table %[1]s.t (target text, who text default current_user);
-- +goose StatementBegin
create function %[1]s.put(target text) returns void language sql security definer set search_path = pg_catalog, pg_temp
as $$ insert into %[1]s.t (target) values (put.target) $$;
-- +goose StatementEnd
`, name)}}}
	}
	both[0].Migrations.(fstest.MapFS)["0002_seen.sql"] = &fstest.MapFile{Data: []byte(`-- +goose Up
create table a.seen (target text, who text default current_user);
-- +goose StatementBegin
create function a.see() returns trigger language plpgsql as $$ begin insert into a.seen (target) values (new.target); return null; end $$;
-- +goose StatementEnd
create constraint trigger see after insert on a.t deferrable initially deferred for each row execute function a.see();
`)}
	return both
}

// moduleHost runs subscriptions with both modules registered, on one handlers'
// connection, as a role that owns nothing.
func (w *world) moduleHost(subs ...platform.Subscription) *host.Worker {
	w.Helper()
	_, as := pgtest.Role(w.T, w.dsn, "pgmill_runtime")
	reg := platform.NewRegistry()
	for _, m := range twoModules() {
		if err := reg.Add(m); err != nil {
			w.Fatal(err)
		}
	}
	return platformtest.HostWith(w.T, &host.Worker{Database: as, Registry: reg, Poll: 50 * time.Millisecond, MaxConns: 1}, subs...)
}

// doing is a subscription that runs a statement for each event, $1 its target.
func doing(name, sql string) platform.Subscription {
	return platform.Subscription{Name: name, Events: []string{"t.*"}, Owners: platform.OwnedBy("test"), From: platform.FromZero, MaxAttempts: 1,
		Handle: func(ctx context.Context, tx pgx.Tx, e platform.Event) error {
			_, err := tx.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol, e.Target)
			return err
		}}
}

// N39: a handler of module a has a's tables, and b's only through b's seam. What it
// tries on b's or on ours holds its shard, or is parked, with a reason code.
func TestAHandlerHasItsModulesTablesOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, twoModules()...)
	park := doing("a.parks", "insert into b.t (target) values ($1)")
	park.OnPoison = platform.Park
	named := doing("own_name", "insert into a.t (target) values ($1)")
	named.Module = "a"
	w.moduleHost(named, park,
		doing("a.own", "insert into a.t (target) values ($1)"),
		doing("a.seam", "select b.put($1)"),
		doing("a.others", "insert into b.t (target) values ($1)"),
		doing("a.ours", "update pgmill.subscription set paused_at = now() where name <> $1"),
		doing("host.others", "insert into b.t (target) values ($1)"), // of no module
		doing("a.emits", "select mill.emit('other.thing', $1)"))
	w.emit("e1")
	for _, name := range []string{"own_name", "a.own", "a.seam", "a.emits", "a.parks"} {
		w.caughtUp(name)
	}
	for _, name := range []string{"a.others", "a.ours", "host.others"} {
		w.failed(name, 1)
	}
	if got, want := w.list(`select name || ':' || state || ':' || reason from mill.subscriptions where reason is not null order by name`),
		"a.others:held:permission_denied a.ours:held:permission_denied host.others:held:permission_denied"; got != want {
		t.Errorf("held are %s, want %s", got, want)
	}
	if got, want := w.list(`select subscription || ':' || reason from mill.parked_events`), "a.parks:permission_denied"; got != want {
		t.Errorf("parked are %s, want %s", got, want)
	}
	if got, want := w.list(`select target || ':' || who from a.t union all select target || ':' || who from b.t order by 1`), "e1:mill_module_a e1:mill_module_a e1:mill_module_b"; got != want {
		t.Errorf("the tables hold %s, want %s", got, want)
	}
	if got, want := w.list(`select target || ':' || who from a.seen`), "e1:mill_module_a e1:mill_module_a"; got != want {
		t.Errorf("what a defers to the commit is done by %s, want %s", got, want)
	}
}

// A role that a handler sets does not outlive its transaction: what settles it is the
// host again, and so is the next handler on the connection.
func TestARoleEndsWithTheHandler(t *testing.T) {
	t.Parallel()
	w := newWorld(t, twoModules()...)
	after := doing("z.after", "")
	after.Handle = func(ctx context.Context, tx pgx.Tx, e platform.Event) error {
		var host bool
		err := tx.QueryRow(ctx, "select current_user = session_user").Scan(&host)
		w.note("%v", host)
		return err
	}
	w.moduleHost(after,
		doing("a.keeps", "select $1"),
		doing("a.session", "select $1; set role mill_module_b"),
		doing("a.resets", "select $1; reset role"),
		doing("a.savepoint", "select $1; savepoint s; set local role mill_module_b; rollback to s"))
	for i := range 3 {
		w.emit(fmt.Sprintf("e%d", i))
		for _, name := range []string{"a.keeps", "a.session", "a.resets", "a.savepoint", "z.after"} {
			w.caughtUp(name)
		}
	}
	if got := w.noted(); got != "true true true" {
		t.Errorf("a handler without a module ran as the host: %s", got)
	}
}

// A batch whose event fails is searched as without a role, and a parked key's replay
// has the role, too.
func TestARoleInSearchAndReplay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, twoModules()...)
	f := refusing(map[string]int{"e2": 1})
	s := doing("a.some", "")
	s.OnPoison = platform.Park
	s.Handle = func(ctx context.Context, tx pgx.Tx, e platform.Event) error {
		if _, err := tx.Exec(ctx, "insert into a.t (target) values ($1)", e.Target); err != nil {
			return err
		}
		return f.refuse(ctx, tx, e)
	}
	w.emit("e1", "e2", "e3")
	w.moduleHost(s)
	w.wait(`select exists (select from mill.parked_events)`)
	w.caughtUp("a.some")
	w.exec(`select mill.unpark('a.some')`)
	w.wait(`select count(*) = 0 from pgmill.parked_key`)
	if got, want := w.list(`select target || ':' || who from a.t order by 1`), "e1:mill_module_a e2:mill_module_a e3:mill_module_a"; got != want {
		t.Errorf("a.t holds %s, want %s", got, want)
	}
}

// F76: a migration that changes what a prepared statement answers costs no attempt.
func TestAChangedTableCostsNoAttempt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, twoModules()...)
	s := doing("a.reads", "")
	s.Handle = func(ctx context.Context, tx pgx.Tx, e platform.Event) error {
		rows, err := tx.Query(ctx, "select * from a.t")
		if err != nil {
			return err
		}
		rows.Close()
		return rows.Err()
	}
	w.moduleHost(s) // one attempt, then it is held
	w.emit("e1")
	w.caughtUp("a.reads")
	w.exec("alter table a.t add column more int")
	w.emit("e2")
	w.caughtUp("a.reads")
}
