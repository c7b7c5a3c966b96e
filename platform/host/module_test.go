package host

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/pg"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

func withModule(t *testing.T, name string) *platform.Registry {
	t.Helper()
	reg := withFunctions(t, name+".one")
	if err := reg.Add(platform.Module{Name: name, Migrations: fstest.MapFS{
		"0001_t.sql": {Data: []byte("-- +goose Up\ncreate table " + name + ".t (a int);\n")},
	}}); err != nil {
		t.Fatal(err)
	}
	return reg
}

// X10: a host refuses a database that lacks a module of its build, with the command;
// status, plan and doctor say so, up mends it.
func TestAModuleThatIsNotMigrated(t *testing.T) {
	t.Parallel()
	dsn := migratedDatabase(t)
	sh := shell{t: t, reg: withModule(t, "depot"), environ: []string{"DATABASE_URL=" + dsn, "PGMILL_PROFILE=single-db-pilot"}}
	code, _, stderr := sh.run("worker", "--addr", "127.0.0.1:0")
	if code != exitNotMigrated || !strings.Contains(stderr, "host: runtime: module depot: ") || !strings.Contains(stderr, "run `host migrate up`") {
		t.Errorf("worker exited with %d: %s", code, stderr)
	}
	if code, stdout, _ := sh.run("migrate", "status"); code != exitNotMigrated || !strings.Contains(stdout, "role mill_module_depot and its rights") {
		t.Errorf("migrate status exited with %d: %s", code, stdout)
	}
	found := func() finding {
		_, stdout, _ := sh.run("doctor", "-o", "json")
		var all []finding
		_ = json.Unmarshal([]byte(stdout), &all)
		for _, f := range all {
			if f.Check == "modules" {
				return f
			}
		}
		t.Fatalf("the doctor says nothing of modules: %s", stdout)
		return finding{}
	}
	if f := found(); f.Status != statusBroken || !strings.Contains(f.Detail, "module depot") {
		t.Errorf("the doctor finds %+v", f)
	}
	var plan, done []pg.Change
	_, stdout, _ := sh.run("migrate", "plan", "-o", "json")
	_ = json.Unmarshal([]byte(stdout), &plan)
	code, stdout, stderr = sh.run("migrate", "up", "-o", "json")
	_ = json.Unmarshal([]byte(stdout), &done)
	if code != exitOK || len(done) != 2 || len(plan) != 2 || done[0].Part != "depot" {
		t.Errorf("migrate up exited with %d, did %v of %v: %s", code, done, plan, stderr)
	}
	if code, _, _ := sh.run("migrate", "status"); code != exitOK {
		t.Errorf("migrate status exited with %d afterwards", code)
	}
	if f := found(); f.Status != statusOK {
		t.Errorf("the doctor finds %+v afterwards", f)
	}
	sh.reg = platform.NewRegistry() // a build without it
	if f := found(); f.Status != statusWarning || !strings.Contains(f.Detail, "depot") {
		t.Errorf("the doctor of a build without the module finds %+v", f)
	}
}

// A database that hosts of another build serve is well: the doctor of a build with other
// modules, the generic host's say, finds no fault in that.
func TestTheDoctorOfAnotherBuild(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Direct(t, migratedDatabase(t))
	environ := []string{"DATABASE_URL=" + dsn}
	theirs, generic := withModule(t, "theirs"), withModule(t, "generic")
	host := start(t, theirs, environ, "serve")
	host.becomes(200, "")
	sh := shell{t: t, reg: generic, environ: environ}
	_, stdout, _ := sh.run("doctor", "-o", "json")
	var all []finding
	if err := json.Unmarshal([]byte(stdout), &all); err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.Check == "server" { // the tests' has fsync off
			continue
		}
		if f.Status != statusOK {
			t.Errorf("the doctor of another build finds %+v", f)
		}
		if f.Check == "modules" && f.Detail != "0, migrated; another build's, which is live: theirs; not in this database, which another build serves: generic" {
			t.Errorf("of modules it says %q", f.Detail)
		}
	}
	host.signal()
	host.exits(exitOK, 15*time.Second)
	sh.reg = platform.NewRegistry()
	if _, stdout, _ := sh.run("doctor"); !strings.Contains(stdout, "neither this build nor a live host has: theirs") {
		t.Errorf("without that host the doctor says\n%s", stdout)
	}
}

// X10: a host tells of the modules that the database has and its build has not.
func TestAModuleThatTheBuildHasNot(t *testing.T) {
	t.Parallel()
	dsn := migratedDatabase(t)
	pgtest.Exec(t, connected(t, dsn), `insert into pgmill.module (name) values ('gone')`)
	ctx, cancel := context.WithCancel(t.Context())
	var log output
	w := &Worker{Database: dsn, Registry: withFunctions(t, "a.one"), Log: NewLogger(&log, "json", slog.LevelInfo, dsn)}
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	log.await(t, `"(modules that the database has and this build has not)"`)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// X10: a host tells of the functions that the database knows and no live host has, and of
// no other.
func TestAFunctionThatNoLiveHostHas(t *testing.T) {
	t.Parallel()
	dsn := migratedDatabase(t)
	pgtest.Exec(t, connected(t, dsn), `
		with host as (insert into pgmill.instance (kind, id, ttl) values ('worker', 'other', '1 h') returning id),
		     known as (insert into pgmill.function (name, kind, module, listens) values ('gone.one', 'subscription', 'gone', '{}'), ('others.one', 'subscription', 'others', '{}'))
		insert into pgmill.instance_function select id, 'others.one' from host`)
	host := start(t, withFunctions(t, "a.one"), []string{"DATABASE_URL=" + dsn}, "worker")
	if got := host.errs.await(t, `"functions that the database knows and no live host has","functions":"([^"]*)"`); got != "gone.one" {
		t.Errorf("the host tells of %s", got)
	}
	host.becomes(200, "")
	host.signal()
	host.exits(exitOK, 15*time.Second)
}

// A function that names a module which is not registered would run without its role:
// the host does not start.
func TestAFunctionOfAModuleThatIsNotRegistered(t *testing.T) {
	t.Parallel()
	reg := platform.NewRegistry()
	s := platform.Of[platform.Subscription](withFunctions(t, "a.one"))[0]
	s.Module = "stok"
	if err := reg.Add(s); err != nil {
		t.Fatal(err)
	}
	sh := shell{t: t, reg: reg, environ: []string{"DATABASE_URL=postgres://ann@127.0.0.1:1/d"}}
	if code, _, stderr := sh.run("worker", "--addr", "127.0.0.1:0"); code != exitUsage || !strings.Contains(stderr, "Module stok is not registered") {
		t.Errorf("worker exited with %d: %s", code, stderr)
	}
}
