package pg_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pgmill/pgmill/platform/pg"
)

// X10, F79: five migrators at once take turns: each step is applied once, and what
// comes out is what one alone makes.
func TestMigrateByFiveAtOnce(t *testing.T) {
	t.Parallel()
	alone, one := empty(t)
	want := migrate(t, alone)
	dsn, pool := empty(t)
	const n = 5
	var done [n][]pg.Change
	var errs [n]error
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { done[i], errs[i] = pg.Migrate(t.Context(), dsn, nil) })
	}
	all.Wait()
	applied := map[pg.Change]int{}
	for i := range n {
		if errs[i] != nil {
			t.Errorf("migrator %d: %v", i, errs[i])
		}
		for _, c := range done[i] {
			applied[c]++
		}
	}
	for _, c := range want {
		if applied[c] != 1 {
			t.Errorf("%+v was applied %d times, want once", c, applied[c])
		}
	}
	if len(applied) != len(want) {
		t.Errorf("%d changes were applied, want %d", len(applied), len(want))
	}
	sameFingerprint(t, "by five at once", fingerprint(t, pool), fingerprint(t, one))
	if again := migrate(t, dsn); len(again) != 0 {
		t.Errorf("a sixth migrator applied %v", again)
	}
}

// X10, F79: a migrator that is killed after any of its steps leaves what the next
// one goes on from.
func TestMigrateKilledMidwayIsResumed(t *testing.T) {
	t.Parallel()
	alone, one := empty(t)
	migrate(t, alone)
	dsn, pool := empty(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	steps := []struct{ name, there string }{
		{"it holds the turn", `select exists (select from pg_locks where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database()))`},
		{"River's first migration", `select to_regclass('pgmill.river_job') is not null`},
		{"another of River's", `select to_regclass('pgmill.river_client') is not null`},
		{"goose's table", `select to_regclass('pgmill.goose_db_version') is not null`},
		{"our tables", `select to_regclass('pgmill.event') is not null`},
		{"functions and views", `select to_regclass('mill.health') is not null`},
	}
	for _, s := range steps {
		cmd := exec.CommandContext(t.Context(), exe)
		cmd.Env = append(os.Environ(), migratorEnv+"="+dsn)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			_ = cmd.Wait()
			close(ended)
		}()
		until(t, s.name, func() bool {
			select {
			case <-ended: // it was faster than we are
				return true
			default:
				return ask[bool](t, pool, s.there)
			}
		})
		_ = cmd.Process.Signal(syscall.SIGKILL)
		<-ended
	}
	migrate(t, dsn)
	sameFingerprint(t, "after six kills", fingerprint(t, pool), fingerprint(t, one))
}

func sameFingerprint(t *testing.T, how, got, want string) {
	t.Helper()
	if got == want {
		return
	}
	have := map[string]bool{}
	for _, line := range strings.Split(got, "\n") {
		have[line] = true
	}
	for _, line := range strings.Split(want, "\n") {
		if !have[line] {
			t.Errorf("%s: this is missing or different: %s", how, line)
		}
		delete(have, line)
	}
	for line := range have {
		t.Errorf("%s: this is there in addition: %s", how, line)
	}
}

// X10: migrating again, with code to put in place anew, changes no row.
func TestMigrateAPopulatedDatabaseAgain(t *testing.T) {
	t.Parallel()
	dsn, pool := empty(t)
	migrate(t, dsn)
	must(t, pool, `select mill.emit('order.placed', 'order-' || n, null, '{}', 'install', jsonb_build_object('idempotency_key', n::text)) from generate_series(1, 100) n`)
	must(t, pool, `select pgmill.advance()`)
	must(t, pool, `select mill.emit('order.placed', 'late')`)
	rows := func() string {
		return ask[string](t, pool, `select md5(string_agg(r, '' order by r)) from (
			select e::text as r from pgmill.event e union all select l::text from pgmill.log l union all select k::text from pgmill.event_key k
			union all select s::text from pgmill.step s) x`)
	}
	before, print := rows(), fingerprint(t, pool)
	must(t, pool, `delete from pgmill.build`)
	if done := migrate(t, dsn); len(done) != 1 || done[0].Part != "code" {
		t.Errorf("Migrate with the code unknown applied %v, want the code", done)
	}
	if after := rows(); after != before {
		t.Error("rows were changed")
	}
	sameFingerprint(t, "again", fingerprint(t, pool), print)
	if n := ask[int](t, pool, `select pgmill.advance()`); n != 1 {
		t.Errorf("advance = %d afterwards, want the one that was left", n)
	}
}

// F77: a migration never makes traffic wait behind it. With a reader of long
// standing it gives up within seconds, having changed nothing; when the reader is
// gone it goes through.
func TestMigrateGivesUpBehindALongReader(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		holds string
		step  string // what is to be done anew; "" : the code
	}{
		{"a reader of a view", `select count(*) from mill.events`, ""},
		{"a dump", `lock table pgmill.event, pgmill.log, pgmill.river_job, mill.events, mill.health, mill.subscriptions in access share mode`, ""},
		{"a lock on goose's table", `lock table pgmill.goose_db_version in access exclusive mode`, ""},
		{"a lock on River's table", `lock table pgmill.river_migration in access exclusive mode`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dsn, pool := empty(t)
			migrate(t, dsn)
			print := fingerprint(t, pool)
			must(t, pool, `update pgmill.build set hash = 'another'`)
			reader := session(t, dsn)
			must(t, reader, tt.holds)

			var slowest atomic.Int64
			var emitted atomic.Int64
			stop := make(chan struct{})
			var traffic sync.WaitGroup
			for _, insert := range []string{`select mill.emit('order.placed', 'order-17')`, `insert into mill.outbox (type, target) values ('order.placed', 'order-17')`} {
				traffic.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						began := time.Now()
						if _, err := pool.Exec(t.Context(), insert); err != nil {
							t.Errorf("%s while migrating: %v", insert, err)
							return
						}
						emitted.Add(1)
						slowest.Store(max(slowest.Load(), int64(time.Since(began))))
					}
				})
			}
			began := time.Now()
			_, err := pg.Migrate(t.Context(), dsn, nil)
			took := time.Since(began)
			close(stop)
			traffic.Wait()
			if !errors.Is(err, pg.ErrBusy) {
				t.Errorf("Migrate behind %s = %v, want ErrBusy", tt.holds, err)
			}
			if took < 2*time.Second || took > 15*time.Second {
				t.Errorf("Migrate gave up after %v, want about 3 s", took)
			}
			if s := time.Duration(slowest.Load()); emitted.Load() < 10 || s > 2*time.Second {
				t.Errorf("meanwhile %d emits, the slowest of %v: they waited behind the migration", emitted.Load(), s)
			}
			must(t, reader, "commit")
			must(t, pool, `update pgmill.build set hash = $1`, pg.CodeHash())
			sameFingerprint(t, "after giving up", fingerprint(t, pool), print)
			must(t, pool, `update pgmill.build set hash = 'another'`)
			if done := migrate(t, dsn); len(done) != 1 {
				t.Errorf("Migrate after the reader applied %v", done)
			}
		})
	}
}

// F77: a writer with rows and an old snapshot is in no migration's way.
func TestMigrateBesideAnIdleWriter(t *testing.T) {
	t.Parallel()
	dsn, pool := empty(t)
	migrate(t, dsn)
	must(t, pool, `delete from pgmill.build`)
	writer := session(t, dsn)
	must(t, writer, `insert into pgmill.event (type, target) values ('a', 't'); select mill.emit('a', 't')`)
	migrate(t, dsn)
	must(t, writer, "commit")
}

// A migrator waits for its turn, and answers ErrBusy rather than for ever.
func TestMigrateWaitsForItsTurn(t *testing.T) {
	t.Parallel()
	dsn, pool := empty(t)
	other := session(t, dsn)
	must(t, other, `select pg_advisory_xact_lock(1886219628, 3)`)
	done := make(chan error, 1)
	go func() {
		_, err := pg.Migrate(context.WithoutCancel(t.Context()), dsn, nil)
		done <- err
	}()
	until(t, "it waits", func() bool {
		return ask[bool](t, pool, `select exists (select from pg_stat_activity where datname = current_database() and query in ('select pg_try_advisory_xact_lock(1886219628, 3)', 'rollback'))`)
	})
	if ask[bool](t, pool, `select to_regnamespace('pgmill') is not null`) {
		t.Error("the migrator began before its turn")
	}
	must(t, other, "commit")
	if err := <-done; err != nil {
		t.Errorf("Migrate after its turn came = %v", err)
	}
}

func TestMigrateByARoleThatMayNot(t *testing.T) {
	t.Parallel()
	dsn, _ := empty(t)
	_, as := newRole(t, dsn)
	_, err := pg.Migrate(t.Context(), as, nil)
	if err == nil || !strings.Contains(err.Error(), "host migrate up") {
		t.Errorf("Migrate by a role without rights = %v; want what to do", err)
	}
	if strings.Contains(fmt.Sprint(err), as) {
		t.Error("the error shows the DSN")
	}
}

func TestPlanSaysWhatMigrateDoes(t *testing.T) {
	t.Parallel()
	dsn, pool := empty(t)
	before, err := pg.Plan(t.Context(), dsn, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := ask[int](t, pool, `select count(*) from pg_namespace where nspname in ('pgmill', 'mill')`); n != 0 {
		t.Error("Plan has changed an empty database")
	}
	var parts string
	for _, c := range before {
		if c.Applied {
			t.Errorf("%+v in an empty database", c)
		}
		if !strings.HasSuffix(parts, c.Part) {
			parts += " " + c.Part
		}
	}
	if parts != " river pgmill code" {
		t.Errorf("the plan's parts are%s; want river, pgmill, code", parts)
	}
	done := migrate(t, dsn)
	if len(done) != len(before) {
		t.Errorf("Migrate did %d things, the plan had %d", len(done), len(before))
	}
	for i := range min(len(done), len(before)) {
		if done[i].Part != before[i].Part || done[i].Version != before[i].Version {
			t.Errorf("Migrate did %+v, the plan had %+v", done[i], before[i])
		}
	}
	after, err := pg.Plan(t.Context(), dsn, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range after {
		if !c.Applied {
			t.Errorf("after the migration the plan still has %+v", c)
		}
	}
	must(t, pool, `delete from pgmill.build`)
	if after, err = pg.Plan(t.Context(), dsn, nil); err != nil || after[len(after)-1].Applied {
		t.Errorf("with the code unknown the plan ends with %+v, %v", after[len(after)-1], err)
	}
}

func TestMigrateOfADSNThatIsNone(t *testing.T) {
	t.Parallel()
	const dsn = "postgres://user:hunter2@nowhere.invalid:port/x"
	for name, f := range map[string]func() error{
		"Migrate": func() error { _, err := pg.Migrate(t.Context(), dsn, nil); return err },
		"Plan":    func() error { _, err := pg.Plan(t.Context(), dsn, nil); return err },
	} {
		if err := f(); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s = %v; want an error without the password", name, err)
		}
	}
}
