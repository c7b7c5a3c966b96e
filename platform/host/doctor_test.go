package host

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

// The doctor finds what is wrong and says what to do, and its exit code says how bad
// it is.
func TestDoctor(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		sql    string // what is done to a well database without hosts
		code   int
		check  string
		status string
		detail string // is in it
		do     string // is in it
	}{
		{"no host lives", "select 1", exitWarnings, "workers", statusWarning, "no_live_host", "start a host"},
		{"all is well", `insert into pgmill.instance (kind, id, ttl) values ('worker', 'w', '1 hour')`, exitOK, "listen", statusOK, "heard", ""},
		{"the server may lose what was committed", "select 1", exitWarnings, "server", statusBroken, "fsync off", "set fsync"}, // as the tests' server
		{"a schedule is overdue", scheduled + `update pgmill.schedule set next_at = now() - interval '61 seconds'`, exitWarnings, "schedules", statusWarning, "overdue", "start a host"},
		{"not migrated", "delete from pgmill.goose_db_version where version_id > 0", exitFailed, "migrations and grants", statusBroken, "not migrated", ""},
		{"an index is not valid", "update pg_index set indisvalid = false where indexrelid = 'pgmill.event_xid'::regclass", exitFailed, "indexes", statusBroken, "event_xid", "reindex index concurrently pgmill.event_xid"},
		{"no partition is ahead", "insert into pgmill.step (k, base, last, after_id, cluster) select k + 1, base, 1000000000, after_id, cluster from pgmill.step order by k desc limit 1",
			exitWarnings, "partitions", statusWarning, "no partition ahead", "start a host"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dsn := migratedDatabase(t)
			pgtest.Exec(t, connected(t, dsn), tt.sql)
			found, code := examined(t, dsn)
			if code != tt.code {
				t.Errorf("exit code %d, want %d; %+v", code, tt.code, found)
			}
			seen := false
			for _, f := range found {
				if f.Check == tt.check && f.Status == tt.status && strings.Contains(f.Detail, tt.detail) && strings.Contains(f.Do, tt.do) {
					seen = true
				}
				if f.Status != statusOK && f.Do == "" {
					t.Errorf("%+v says nothing of what to do", f)
				}
			}
			if !seen {
				t.Errorf("no %s of %s with %q and %q in %+v", tt.status, tt.check, tt.detail, tt.do, found)
			}
		})
	}
}

// Who keeps vacuum back is named, with the statement that ends it.
func TestDoctorNamesWhoHoldsVacuumBack(t *testing.T) {
	t.Parallel()
	dsn := migratedDatabase(t)
	conn := connected(t, dsn)
	pgtest.Exec(t, conn, "begin isolation level repeatable read; select count(*) from pgmill.event")
	pgtest.Exec(t, connected(t, dsn), "alter database "+pgx.Identifier{conn.Config().Database}.Sanitize()+" set pgmill.holder_age = '0 seconds'")
	found, code := examined(t, dsn)
	if code != exitWarnings {
		t.Errorf("exit code %d, want %d", code, exitWarnings)
	}
	for _, f := range found {
		if f.Check == "vacuum" && strings.Contains(f.Do, "pg_terminate_backend(") {
			return
		}
	}
	t.Errorf("nobody is named in %+v", found)
}

// A database that is not there is exit code 3, without its password.
func TestDoctorWithoutADatabase(t *testing.T) {
	t.Parallel()
	sh := shell{t: t, reg: platform.NewRegistry(), environ: []string{"DATABASE_URL=postgres://ann:C4NARY@127.0.0.1:1/d"}}
	if code, stdout, stderr := sh.run("doctor"); code != exitUnreachable || strings.Contains(stdout+stderr, "C4NARY") {
		t.Errorf("exit code %d, want %d; %s%s", code, exitUnreachable, stdout, stderr)
	}
}

// Where a private Postgres is to be started, its programs are looked for. Not parallel:
// where they are is in the environment.
func TestDoctorLooksForTheBinaries(t *testing.T) {
	t.Setenv("PGMILL_PG_BIN", t.TempDir())
	sh := shell{t: t, reg: platform.NewRegistry(), environ: []string{"PGMILL_DATA_DIR=" + t.TempDir()}}
	code, stdout, stderr := sh.run("doctor")
	if code != exitFailed || !strings.Contains(stdout, "binaries  broken") || !strings.Contains(stdout, "correct PGMILL_PG_BIN") {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
	if found := programs(Config{Database: "postgres://h/d"}); found != nil {
		t.Errorf("a host with a database was told %+v", found)
	}
}

func TestWorstDecides(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		statuses string
		want     error
	}{{"", nil}, {"ok", nil}, {"ok warning", errWarnings}, {"warning broken ok", errBroken}} {
		var found []finding
		for s := range strings.FieldsSeq(tt.statuses) {
			found = append(found, finding{Status: s})
		}
		if got := worst(found); !errors.Is(got, tt.want) {
			t.Errorf("%q: %v, want %v", tt.statuses, got, tt.want)
		}
	}
}

// examined is what the doctor says of a database, and the exit code but for the tests'
// server, whose fsync is off.
func examined(t *testing.T, dsn string) (found []finding, code int) {
	t.Helper()
	sh := shell{t: t, reg: platform.NewRegistry(), environ: []string{"DATABASE_URL=" + pgtest.Direct(t, dsn)}}
	code, stdout, stderr := sh.run("doctor", "-o", "json")
	if err := json.Unmarshal([]byte(stdout), &found); err != nil || code != exitFailed {
		t.Fatalf("exit code %d, %v of %s%s", code, err, stdout, stderr)
	}
	rest := slices.DeleteFunc(slices.Clone(found), func(f finding) bool { return f.Check == "server" })
	return found, exitCode(worst(rest))
}

func connected(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgtest.Direct(t, dsn))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}
