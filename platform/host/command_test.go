package host

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/pg"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

// output is what a command prints, safe to read while it runs.
type output struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	more chan struct{} // closed by the next write
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.more != nil {
		close(o.more)
		o.more = nil
	}
	return o.buf.Write(p)
}

// await returns the first group of re once it has been printed.
func (o *output) await(t *testing.T, re string) string {
	t.Helper()
	wanted := regexp.MustCompile(re)
	for {
		o.mu.Lock()
		if m := wanted.FindSubmatch(o.buf.Bytes()); m != nil {
			o.mu.Unlock()
			return string(m[1])
		}
		if o.more == nil {
			o.more = make(chan struct{})
		}
		more := o.more
		o.mu.Unlock()
		select {
		case <-more:
		case <-time.After(30 * time.Second):
			t.Fatalf("%s was not printed: %s", re, o)
		}
	}
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// shell runs the command line in an environment of its own.
type shell struct {
	t       *testing.T
	reg     *platform.Registry
	environ []string
	stdin   io.Reader
}

func (s shell) run(args ...string) (code int, stdout, stderr string) {
	s.t.Helper()
	var out, errs output
	o := &options{reg: s.reg, stdin: s.stdin, stdout: &out, stderr: &errs, environ: s.environ, self: "host"}
	code = o.run(s.t.Context(), args)
	return code, out.String(), errs.String()
}

func emptyDatabase(t *testing.T) string {
	t.Helper()
	return pgtest.Database(t, nil, "empty")
}

func migratedDatabase(t *testing.T) string {
	t.Helper()
	return pgtest.Database(t, func(ctx context.Context, dsn string) error {
		_, err := pg.Migrate(ctx, dsn, nil)
		return err
	}, pg.CodeHash())
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	sh := shell{t: t, reg: withFunctions(t, "a.one"), environ: []string{"DATABASE_URL=postgres://ann:C4NARY@127.0.0.1:1/d"}}
	for _, tt := range []struct {
		args   string
		code   int
		stdout string // is in it
		stderr string
	}{
		{"functions", exitOK, "a.one  subscription  a       test.event", ""},
		{"functions -o json", exitOK, `"listens": [`, ""},
		{"version", exitOK, "pgmill ", ""},
		{"version -o json", exitOK, `"version": "`, ""},
		{"--help", exitOK, "subscription", ""},
		{"url", exitOK, "postgres://ann:C4NARY@127.0.0.1:1/d\n", ""},
		{"url --database-url postgres://flag/d", exitOK, "postgres://flag/d\n", ""},
		{"nosuch", exitUsage, "", `unknown command "nosuch"`},
		{"serve --nosuch", exitUsage, "", "unknown flag: --nosuch\nhost: see host serve --help"},
		{"serve more", exitUsage, "", "unknown command"},
		{"functions -o xml", exitUsage, "", `-o "xml": write table or json`},
		{"subscription", exitUsage, "", "say which: [list watch shadow pause"},
		{"subscription paus x", exitUsage, "", "did you mean pause?"},
		{"subscription pause", exitUsage, "", "`host subscription list` shows them"},
		{"subscription hold x --shard one", exitUsage, "", `--shard "one": write a number`},
		{"subscription drop x --pos -1 --yes", exitUsage, "", `--pos "-1": write a number`},
		{"subscription unpark x", exitUsage, "", "say --key KEY or --all"},
		{"subscription unpark x --key k --all", exitUsage, "", "say --key KEY or --all"},
		{"subscription move x", exitUsage, "", "say --to now, --to zero"},
		{"subscription drop x", exitUsage, "", "nothing was done: say --yes"},
		{"subscription move x --to zero", exitUsage, "", "its effects happen a second time"},
		{"subscription replay x", exitUsage, "", "x will handle every event from zero on again"},
		{"subscription reshard x", exitUsage, "", "say --shards N"},
		{"subscription reshard x --shards two", exitUsage, "", `--shards "two": write a number`},
		{"serve --max-conns 0 --deployment nosuch", exitUsage, "", `no profile "nosuch"`},
		{"serve --functions a.tow --addr 127.0.0.1:0", exitUsage, "", "did you mean a.one?"},
		{"subscription list", exitUnreachable, "", "database unreachable: connection refused at 127.0.0.1:1: start Postgres there"},
		{"migrate up", exitUnreachable, "", "refused"},
		{"migrate status", exitUnreachable, "", "refused"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := sh.run(strings.Fields(tt.args)...)
			if code != tt.code || !strings.Contains(stdout, tt.stdout) || !strings.Contains(stderr, tt.stderr) {
				t.Errorf("exit code %d\nstdout: %s\nstderr: %s\nwant %d, %q, %q", code, stdout, stderr, tt.code, tt.stdout, tt.stderr)
			}
			if strings.Contains(stderr, "C4NARY") {
				t.Errorf("the DSN is in %s", stderr)
			}
		})
	}
}

func TestMigrateCommands(t *testing.T) {
	t.Parallel()
	sh := shell{t: t, reg: platform.NewRegistry(), environ: []string{"PGMILL_PROFILE=single-db-pilot", "DATABASE_URL=" + emptyDatabase(t)}}
	count := func(stdout string) (applied, all int) {
		var changes []pg.Change
		if err := json.Unmarshal([]byte(stdout), &changes); err != nil {
			t.Fatalf("%v: %s", err, stdout)
		}
		for _, c := range changes {
			if c.Applied {
				applied++
			}
		}
		return applied, len(changes)
	}
	code, stdout, stderr := sh.run("migrate", "status", "-o", "json")
	if applied, all := count(stdout); code != exitNotMigrated || applied != 0 || all < 3 || !strings.Contains(stderr, "host migrate up") {
		t.Fatalf("status of an empty database: %d, %d of %d applied: %s", code, applied, all, stderr)
	}
	code, _, stderr = sh.run("serve", "--addr", "127.0.0.1:0")
	if code != exitNotMigrated || !strings.Contains(stderr, "run `host migrate up`") {
		t.Errorf("serve on an unmigrated database: %d, %s", code, stderr)
	}
	if code, _, stderr = sh.run("subscription", "list"); code != exitNotMigrated || !strings.Contains(stderr, "host migrate up") {
		t.Errorf("subscription list on an unmigrated database: %d, %s", code, stderr)
	}
	_, planned, _ := sh.run("migrate", "plan", "-o", "json")
	code, stdout, stderr = sh.run("migrate", "up", "-o", "json")
	if applied, all := count(stdout); code != exitOK || applied != all {
		t.Fatalf("up: %d, %d of %d applied: %s", code, applied, all, stderr)
	} else if _, plan := count(planned); plan != all {
		t.Errorf("planned %d, did %d", plan, all)
	}
	if code, stdout, _ = sh.run("migrate", "up"); code != exitOK || !strings.HasPrefix(stdout, "nothing to do") {
		t.Errorf("up again: %d, %s", code, stdout)
	}
	if code, stdout, _ = sh.run("migrate", "plan", "-o", "json"); code != exitOK || stdout != "[]\n" {
		t.Errorf("plan: %d, %s", code, stdout)
	}
	if code, stdout, _ = sh.run("migrate", "status"); code != exitOK || !strings.Contains(stdout, "APPLIED") || strings.Contains(stdout, " no\n") {
		t.Errorf("status: %d, %s", code, stdout)
	}
}

// What is missing is told to be for want of a migration only if it is: an older
// build's view lacks a column, a broken one is not mended by migrating.
func TestMissingColumnAsksTheDatabase(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, change string
		code         int
		stderr       string
	}{
		{"an older build's view", `update pgmill.build set ordinal = 0`, exitNotMigrated, "run `host migrate up`"},
		{"a view that somebody broke", ``, exitFailed, `column "shard" does not exist`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dsn := migratedDatabase(t)
			conn, err := pgx.Connect(t.Context(), dsn)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(context.WithoutCancel(t.Context()))
			change := `drop view mill.subscriptions cascade; create view mill.subscriptions as select 'a.one' as name; ` + tt.change
			if _, err := conn.Exec(t.Context(), change); err != nil {
				t.Fatal(err)
			}
			sh := shell{t: t, reg: platform.NewRegistry(), environ: []string{"DATABASE_URL=" + dsn}}
			code, _, stderr := sh.run("subscription", "list")
			if code != tt.code || !strings.Contains(stderr, tt.stderr) {
				t.Errorf("exit code %d, %s; want %d, %s", code, stderr, tt.code, tt.stderr)
			}
		})
	}
}

// declared puts a subscription into the database as a host does, with a failing event.
const declared = `
insert into pgmill.function (name, kind, module, listens) values ('a.one', 'subscription', 'a', '{test.event}');
insert into pgmill.subscription (name, likes, order_by, shards, batch, max_attempts, on_poison, replayable, timeout)
values ('a.one', '{test.event}', 'key', 1, 500, 5, 'hold', true, '30 s');
insert into pgmill.cursor (subscription, shard, n, pos) values ('a.one', 0, 0, 0);
insert into pgmill.shard (subscription, shard) values ('a.one', 0);
select mill.emit('test.event', 't', 'k'), mill.emit('test.event', 't', 'k');`

// scheduled does so with a schedule of that name.
const scheduled = declared + `
update pgmill.function set kind = 'schedule';
insert into pgmill.schedule (name, cron, zone, missed, max_missed, overlap, next_at) values ('a.one', '30 2 * * *', 'Europe/Berlin', 'latest', 100, 'queue', '2100-01-01');`

const failing = `update pgmill.shard set failing_pos = 1, attempts = 5, reason = 'handler_error', failed_at = now(), held_at = now()`

func TestSubscriptionCommands(t *testing.T) {
	t.Parallel()
	dsn := migratedDatabase(t)
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	exec := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	exec(declared)
	exec("select pgmill.advance()")
	sh := shell{t: t, reg: platform.NewRegistry(), environ: []string{"DATABASE_URL=" + dsn}, stdin: strings.NewReader("")}

	for _, step := range []struct {
		args   string
		fails  bool // the first event fails before
		code   int
		stdout string
		state  string
	}{
		{args: "list", code: exitOK, stdout: "a.one  0", state: "running"},
		{args: "pause a.one --reason lunch", code: exitOK, stdout: "a.one: paused\n", state: "paused"},
		{args: "resume a.one -o json", code: exitOK, stdout: `"result": "`, state: "running"},
		{args: "pause nosuch", code: exitNotFound, state: "running"},
		{args: "hold a.one", code: exitConflict, state: "running"},
		{args: "hold a.one --shard 7", code: exitNotFound, state: "running"},
		{args: "hold a.one", fails: true, code: exitOK, stdout: "a.one: held\n", state: "held"},
		{args: "park a.one", code: exitOK, stdout: "a.one: parked\n", state: "degraded"},
		{args: "unpark a.one --key nosuch", code: exitNotFound, state: "degraded"},
		{args: "unpark a.one --all", code: exitOK, stdout: "a.one: 1 keys\n", state: "degraded"},
		{args: "drop a.one --pos 99 --yes", code: exitNotFound, state: "degraded"},
		{args: "drop a.one --pos 1 --yes", code: exitOK, stdout: "a.one: dropped\n", state: "degraded"},
		{args: "move a.one --to zero --yes", code: exitOK, stdout: "a.one: moved to 0\n", state: "running"},
		{args: "drop a.one --yes", fails: true, code: exitOK, stdout: "a.one: dropped\n", state: "running"},
		{args: "move a.one --to now --yes", code: exitOK, stdout: "a.one: moved to 2\n", state: "running"},
		{args: "replay a.one --from now --yes", code: exitConflict, state: "running"},
		{args: "replay nosuch --yes", code: exitNotFound, state: "running"},
		{args: "replay a.one --from 2 --yes --detach --reason again", code: exitOK, stdout: "a.one: moved to 1\n", state: "running"},
		{args: "reshard a.one --shards 1 --detach", code: exitOK, stdout: "a.one: 1 shards\n", state: "running"},
		{args: "reshard a.one --shards 2 --detach", code: exitOK, stdout: "a.one: 1 to 2 shards", state: "running"},
	} {
		if step.fails {
			exec(failing)
		}
		code, stdout, stderr := sh.run(append([]string{"subscription"}, strings.Fields(step.args)...)...)
		if code != step.code || !strings.Contains(stdout, step.stdout) || strings.Contains(stderr, "SQLSTATE") {
			t.Errorf("%s: exit code %d, want %d\nstdout: %s\nstderr: %s", step.args, code, step.code, stdout, stderr)
		}
		_, listed, _ := sh.run("subscription", "list", "-o", "json")
		var rows []subscriptionRow
		if err := json.Unmarshal([]byte(listed), &rows); err != nil || len(rows) != 1 || rows[0].State != step.state {
			t.Errorf("after %s: %v %s; want state %s", step.args, err, listed, step.state)
		}
	}
	var audits int
	if err := conn.QueryRow(t.Context(), "select count(*) from mill.audit where reason is not distinct from 'lunch'").Scan(&audits); err != nil || audits != 1 {
		t.Errorf("%d audit rows with the reason, %v", audits, err)
	}
}

// What a command could do nothing with is told with the next step.
func TestCommandsSayWhatToDoNext(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Direct(t, migratedDatabase(t))
	role, poor := pgtest.Role(t, dsn)
	nowhere, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	nowhere.Path = "/nosuchdb"
	for _, tt := range []struct {
		name, dsn, args string
		code            int
		stderr          string
	}{
		{"a reader's grant is missing", poor, "subscription list", exitDenied, `run ` + "`GRANT mill_reader TO \"" + role + "\";`"},
		{"an operator's grant is missing", poor, "subscription pause a.one", exitDenied, `run ` + "`GRANT mill_operator TO \"" + role + "\";`"},
		{"a host's grant is missing", poor, "worker --addr 127.0.0.1:0", exitNotMigrated, "run `GRANT pgmill_runtime TO " + role + ";`"},
		{"no such subscription", dsn, "subscription pause a.on", exitNotFound, "see mill.subscriptions"},
		{"no such database", nowhere.String(), "migrate up", exitUnreachable, "create it (`createdb nosuchdb`), or correct DATABASE_URL"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			sh := shell{t: t, reg: platform.NewRegistry(), environ: []string{"DATABASE_URL=" + tt.dsn, "PGMILL_MIGRATE=false"}}
			code, _, stderr := sh.run(strings.Fields(tt.args)...)
			if code != tt.code || !strings.Contains(stderr, tt.stderr) {
				t.Errorf("exit code %d, %s; want %d, %s", code, stderr, tt.code, tt.stderr)
			}
		})
	}
}

func TestScheduleCommands(t *testing.T) {
	t.Parallel()
	dsn := migratedDatabase(t)
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if _, err := conn.Exec(t.Context(), scheduled); err != nil {
		t.Fatal(err)
	}
	sh := shell{t: t, reg: platform.NewRegistry(), environ: []string{"DATABASE_URL=" + dsn}}
	for _, step := range []struct {
		args   string
		code   int
		stdout string
	}{
		{"list", exitOK, "a.one  30 2 * * *  Europe/Berlin  2100-01-01 "},
		{"list -o json", exitOK, `"last_state": null`},
		{"preview a.one -n 3", exitOK, "UTC\nFri 2100-01-01 01:00:00 +0100 CET  2100-01-01 00:00:00\nFri 2100-01-01 02:30:00 +0100 CET  2100-01-01 01:30:00\nSat "},
		{"preview a.one -o json -n 1", exitOK, `"at": "2100-01-01T01:00:00+01:00",` + "\n    " + `"utc": "2100-01-01T00:00:00Z"`},
		{"preview a.one -n 0", exitUsage, ""},
		{"preview a.one -n x", exitUsage, ""},
		{"preview nosuch", exitNotFound, ""},
		{"preview --help", exitOK, "fires at the first instant\nafter the gap"},
		{"pause a.one --reason lunch", exitOK, "a.one: paused\n"},
		{"preview a.one", exitConflict, ""},
		{"list", exitOK, "paused"},
		{"trigger a.one", exitOK, "a.one: triggered, event "},
		{"list -o json", exitOK, `"last_state": "pending"`},
		{"resume a.one -o json", exitOK, `"schedule": "a.one"`},
		{"resume nosuch", exitNotFound, ""},
		{"trigger", exitUsage, ""},
		{"trigge a.one", exitUsage, ""},
	} {
		code, stdout, stderr := sh.run(append([]string{"schedule"}, strings.Fields(step.args)...)...)
		if code != step.code || !strings.Contains(stdout, step.stdout) || strings.Contains(stderr, "SQLSTATE") {
			t.Errorf("%s: exit code %d, want %d\nstdout: %s\nstderr: %s", step.args, code, step.code, stdout, stderr)
		}
	}
	var audits string
	const query = "select string_agg(concat_ws(' ', action, subject, reason), ', ' order by at) from mill.audit"
	if err := conn.QueryRow(t.Context(), query).Scan(&audits); err != nil || audits != "schedule.pause a.one lunch, schedule.trigger a.one, schedule.resume a.one" {
		t.Errorf("audit: %s, %v", audits, err)
	}
}

// F73: what goes wrong on the way to a database is told without its password.
func TestConnectErrorsHoldNoPassword(t *testing.T) {
	t.Parallel()
	good, err := url.Parse(migratedDatabase(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		change func(*url.URL)
		code   int
		advice string
	}{
		{"a wrong password", func(*url.URL) {}, exitDenied, "check the user and the password in DATABASE_URL"},
		{"a wrong host", func(u *url.URL) { u.Host = "no-such-host.invalid:5432" }, exitUnreachable, "check the host in DATABASE_URL"},
		{"no TLS there", func(u *url.URL) { u.RawQuery = "sslmode=require" }, exitUnreachable, "check DATABASE_URL"},
		{"no such port", func(u *url.URL) { u.Host = "127.0.0.1:99999" }, exitUsage, "USER:PASSWORD@HOST:5432/DATABASE"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			u := *good
			u.User = url.UserPassword(u.User.Username(), canary)
			tt.change(&u)
			sh := shell{t: t, reg: platform.NewRegistry(), environ: []string{"DATABASE_URL=" + u.String()}}
			for _, args := range [][]string{{"subscription", "list"}, {"migrate", "status"}} {
				code, stdout, stderr := sh.run(args...)
				if code != tt.code || strings.Contains(stdout+stderr, canary) || !strings.Contains(stderr, tt.advice) {
					t.Errorf("%v: exit code %d, want %d: %s; want %s", args, code, tt.code, stderr, tt.advice)
				}
			}
		})
	}
}
