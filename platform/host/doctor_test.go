package host

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/pg"
	faults "github.com/pgmill/pgmill/platform/platformtest/fault"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
	"github.com/pgmill/pgmill/sql"
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
		{"an index of a module is not valid", `insert into pgmill.module (name, versions) values ('stock', '{1}'); create schema stock; create table stock.item (a int);
			create index "by A" on stock.item (a); update pg_index set indisvalid = false where indexrelid = 'stock."by A"'::regclass`, exitFailed, "indexes", statusBroken, `stock."by A"`, `reindex index concurrently stock."by A"`},
		{"another's index is not valid", `insert into pgmill.instance (kind, id, ttl) values ('worker', 'w', '1 hour'); create table theirs (a int unique);
			update pg_index set indisvalid = false where indrelid = 'theirs'::regclass`, exitOK, "indexes", statusOK, "all valid", ""},
		{"a dead host has a claim", `insert into pgmill.instance (kind, id, ttl, last_seen) values ('worker', 'w', '1 hour', now()), ('worker', 'dead', '10 s', now() - interval '1 hour');
			insert into pgmill.river_job (state, attempt, attempted_at, attempted_by, args, kind, queue, max_attempts) values ('running', 1, now(), '{dead}', '{}', 'shard', 'subscription', 1)`,
			exitWarnings, "workers", statusWarning, "host_lost", "a live host takes them"},
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
			finds(t, found, tt.check, tt.status, tt.detail, tt.do)
		})
	}
}

// finds wants a finding that has these, and something to do in each that is not well.
func finds(t *testing.T, found []finding, check, status, detail, do string) {
	t.Helper()
	seen := false
	for _, f := range found {
		if f.Check == check && f.Status == status && strings.Contains(f.Detail, detail) && strings.Contains(f.Do, do) {
			seen = true
		}
		if f.Status != statusOK && f.Do == "" {
			t.Errorf("%+v says nothing of what to do", f)
		}
	}
	if !seen {
		t.Errorf("no %s of %s with %q and %q in %+v", status, check, detail, do, found)
	}
}

// What is wrong with how a host would be told to reach its database.
func TestDoctorOfAHostsSettings(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Direct(t, migratedDatabase(t))
	pooled, elsewhere := faults.NewPooler(t, dsn).DSN, pgtest.Direct(t, emptyDatabase(t))
	for _, tt := range []struct {
		name, database string
		setting        string
		check, status  string
		detail, do     string // are in it
	}{
		{"a pooler and no other way", pooled, "", "listen", statusWarning, "not heard (listen_unavailable)", "set PGMILL_LISTEN_URL to a DSN that bypasses the pooler"},
		{"a pooler and a way past it", pooled, "PGMILL_LISTEN_URL=" + dsn, "listen", statusOK, "heard after", ""},
		{"a way to another database", dsn, "PGMILL_LISTEN_URL=" + elsewhere, "listen", statusBroken, "another database", "set PGMILL_LISTEN_URL to the same database"},
		{"more connections than there are", dsn, "PGMILL_MAX_CONNS=1000", "connections", statusWarning, "one more host may take 1019 (worker 1009)", "lower PGMILL_MAX_CONNS"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			found, _ := diagnosed(t, "DATABASE_URL="+tt.database, tt.setting)
			finds(t, found, tt.check, tt.status, tt.detail, tt.do)
		})
	}
}

func TestDoctorReadsTwoClocks(t *testing.T) {
	t.Parallel()
	for skew, want := range map[time.Duration]string{0: statusOK, time.Second: statusOK, -time.Second: statusOK, 1001 * time.Millisecond: statusWarning, -time.Hour: statusWarning} {
		if got := skewed(skew); len(got) != 1 || got[0].Status != want || (got[0].Do == "") != (want == statusOK) {
			t.Errorf("%v: %+v, want %s", skew, got, want)
		}
	}
}

// What is the server's and not a database's: roles, which hosts become for some of their
// work, and who keeps vacuum back without a session.
func TestDoctorOfAServer(t *testing.T) {
	t.Parallel()
	server := faults.NewServer(t, map[string]string{"wal_level": "logical"})
	if _, err := pg.Migrate(t.Context(), server.DSN, nil); err != nil {
		t.Fatal(err)
	}
	owner := connected(t, server.DSN)
	role, as := pgtest.Role(t, server.DSN, "pgmill_runtime", "mill_reader")
	for _, tt := range []struct {
		name, sql     string
		check, status string
		detail, do    string // are in it
	}{
		{"a host's role", "select 1", "roles", statusOK, "", ""},
		{"the roles are another's", "revoke pgmill_cleanup from pgmill_runtime", "roles", statusWarning, role + " may not become pgmill_cleanup: no clean-up runs", "as a superuser: GRANT pgmill_cleanup TO pgmill_runtime"},
		{"what it says is done", "GRANT pgmill_cleanup TO pgmill_runtime", "roles", statusOK, "", ""},
		{"rights, but no membership", "revoke pgmill_runtime from " + role, "roles", statusWarning, role + " may not become pgmill_api: the API answers grant_missing", "GRANT pgmill_runtime TO " + role},
		{"a replication slot", "select pg_create_logical_replication_slot('idle', 'pgoutput')", "vacuum", statusWarning, "replication slot slot idle holds back vacuum", "select pg_drop_replication_slot('idle')"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pgtest.Exec(t, owner, tt.sql)
			found, _ := diagnosed(t, "DATABASE_URL="+as)
			finds(t, found, tt.check, tt.status, tt.detail, tt.do)
		})
	}
}

// Who keeps vacuum back is named, with the statement that ends it.
func TestDoctorNamesWhoHoldsVacuumBack(t *testing.T) {
	t.Parallel()
	dsn := migratedDatabase(t)
	conn, other := connected(t, dsn), connected(t, dsn)
	name := conn.Config().Database // a gid is the server's
	pgtest.Exec(t, other, "alter database "+pgx.Identifier{name}.Sanitize()+" set pgmill.holder_age = '0 seconds'")
	for _, tt := range []struct{ sql, end, detail, do string }{
		{"begin isolation level repeatable read; select count(*) from pgmill.event", "rollback", "transaction pid ", "select pg_terminate_backend("},
		{"begin; create table t (a int); prepare transaction '" + name + "'", "rollback prepared '" + name + "'", "prepared transaction gid " + name, "commit prepared '" + name + "' or rollback prepared"},
	} {
		pgtest.Exec(t, conn, tt.sql)
		found, code := examined(t, dsn)
		pgtest.Exec(t, conn, tt.end)
		if code != exitWarnings {
			t.Errorf("exit code %d, want %d", code, exitWarnings)
		}
		finds(t, found, "vacuum", statusWarning, tt.detail, tt.do)
	}
}

// The doctor has something to do for each reason that mill.health gives, but for
// old_snapshot, whose holders it names itself; and for no other.
func TestDoctorKnowsTheReasonsOfHealth(t *testing.T) {
	t.Parallel()
	text, err := fs.ReadFile(sql.FS, "views/020_health.sql")
	if err != nil {
		t.Fatal(err)
	}
	given := map[string]bool{string(platform.ReasonBadSchedule): true, string(platform.ReasonOwnersIncomplete): true} // a schedule's own
	for _, m := range regexp.MustCompile(`then '([a-z_]+)' end|array\['([a-z_]+)'\]`).FindAllStringSubmatch(string(text), -1) {
		given[m[1]+m[2]] = true
	}
	delete(given, "old_snapshot")
	if want, got := sorted(given), sorted(remedies); !slices.Equal(got, want) || len(want) < 10 {
		t.Errorf("remedies for %q, mill.health gives %q", got, want)
	}
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
	return diagnosed(t, "DATABASE_URL="+pgtest.Direct(t, dsn))
}

// diagnosed is examined of a host with these settings.
func diagnosed(t *testing.T, environ ...string) (found []finding, code int) {
	t.Helper()
	sh := shell{t: t, reg: platform.NewRegistry(), environ: environ}
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
