package host

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/pg"
	faults "github.com/pgmill/pgmill/platform/platformtest/fault"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

// A host whose DSN is wrong says in one line what is, and ends: no waiting mends it.
func TestServeEndsWithAWrongDSN(t *testing.T) {
	t.Parallel()
	good := pgtest.Direct(t, migratedDatabase(t))
	wrong := []wrongDSN{
		{"a wrong password", func(u *url.URL) { u.User = url.UserPassword(u.User.Username(), canary) }, exitDenied, "check the user and the password in DATABASE_URL"},
		{"an unknown database", func(u *url.URL) { u.Path = "/nosuchdb" }, exitUnreachable, "create it (`createdb nosuchdb`), or correct DATABASE_URL"},
		{"an unknown parameter", func(u *url.URL) { u.RawQuery = "sslmod=disable" }, exitFailed, `refuses the connection: unrecognized configuration parameter "sslmod" (SQLSTATE 42704): correct DATABASE_URL`},
		{"TLS where there is none", func(u *url.URL) { u.RawQuery = "sslmode=require" }, exitUnreachable, "has no TLS, which sslmode asks for"},
		{"a typo in the scheme", func(u *url.URL) { u.Scheme = "postgers" }, exitUsage, "DATABASE_URL: not a Postgres DSN (its value is not shown)"},
	}
	for _, tt := range wrong {
		for _, migrate := range []string{"true", "false"} {
			t.Run(tt.name+", migrate="+migrate, func(t *testing.T) {
				t.Parallel()
				tt.served(t, good, migrate)
			})
		}
	}
}

// Behind PgBouncer, too, which says all that in other words (stateOf).
func TestServeEndsWithAWrongDSNOfAPooler(t *testing.T) {
	t.Parallel()
	pooler := faults.NewPooler(t, migratedDatabase(t))
	for _, tt := range []wrongDSN{
		{"a wrong password", func(u *url.URL) { u.User = url.UserPassword(u.User.Username(), canary) }, exitDenied, "check the user and the password in DATABASE_URL"},
		{"an unknown database", func(u *url.URL) { u.Path = "/nosuchdb" }, exitUnreachable, "create it (`createdb nosuchdb`), or correct DATABASE_URL"},
		{"an unknown parameter", func(u *url.URL) { u.RawQuery = "sslmod=disable" }, exitFailed, "refuses the connection: unsupported startup parameter: sslmod"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.served(t, pooler.DSN, "false")
		})
	}
}

type wrongDSN struct {
	name   string
	change func(*url.URL)
	code   int
	said   string
}

// served starts a host with good, changed, and holds what it says against what is wanted.
func (tt wrongDSN) served(t *testing.T, good, migrate string) {
	t.Helper()
	u, err := url.Parse(good)
	if err != nil {
		t.Fatal(err)
	}
	tt.change(u)
	sh := shell{t: t, reg: platform.NewRegistry(), environ: []string{"DATABASE_URL=" + u.String(), "PGMILL_MIGRATE=" + migrate}}
	code, _, stderr := sh.run("serve", "--addr", "127.0.0.1:0", "--log-format", "text", "--log-level", "warn")
	if code != tt.code || strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "host: ") || !strings.Contains(stderr, tt.said) {
		t.Errorf("exit code %d, want %d, and one line with %q: %s", code, tt.code, tt.said, stderr)
	}
	if strings.Contains(stderr, canary) || strings.Contains(stderr, "://") {
		t.Errorf("the DSN is in %s", stderr)
	}
}

// On a developer's machine a server that does not come is waited for with a word each
// time, and not for ever.
func TestServeLosesItsPatience(t *testing.T) {
	t.Parallel()
	var errs output
	environ := []string{"DATABASE_URL=postgres://ann:" + canary + "@127.0.0.1:1/d", "PGMILL_ADDR=127.0.0.1:0"}
	cfg, err := loadConfig(sources{environ: environ}, platform.NewRegistry(), true)
	if err != nil {
		t.Fatal(err)
	}
	o := &options{stderr: &errs}
	p, err := newProcess(cfg, "serve", platform.NewRegistry(), o.logger(cfg), nil)
	if err != nil || p.patience != localPatience {
		t.Fatalf("a local host has a patience of %v, %v; want %v", p.patience, err, localPatience)
	}
	p.patience = 500 * time.Millisecond
	code := o.report(p.Run(t.Context()), "host serve")
	said := errs.String()
	const why = "connection refused at 127.0.0.1:1: start Postgres there, or correct DATABASE_URL"
	if code != exitUnreachable || strings.Count(said, why) != 2 || !strings.Contains(said, "no database yet, trying again") || strings.Contains(said, canary) {
		t.Errorf("exit code %d, want %d, and %q twice: %s", code, exitUnreachable, why, said)
	}
}

func TestMayCome(t *testing.T) {
	t.Parallel()
	_, refused := pgx.Connect(t.Context(), "postgres://127.0.0.1:1/none?connect_timeout=2")
	for _, tt := range []struct {
		name string
		err  error
		want bool
	}{
		{"nothing listens", refused, true},
		{"no route", &net.OpError{Op: "dial", Err: errors.New("no route")}, true},
		{"a server that starts", sqlstate("57P03"), true},
		{"a server without a place", sqlstate("53300"), true},
		{"an unknown database", sqlstate("3D000"), false},
		{"a wrong password", sqlstate("28P01"), false},
		{"PgBouncer of an unknown database", sqlError("08P01", `database "d" does not exist`), false},
		{"PgBouncer of a server that starts", sqlError("08P01", "server login failed: FATAL: the database system is starting up"), true},
		{"no Postgres on this machine", pg.ErrNoBinaries, false},
		{"not migrated", pg.ErrNotMigrated, false},
	} {
		if got := mayCome(fmt.Errorf("migrate: %w", tt.err)); got != tt.want {
			t.Errorf("%s: mayCome(%v) = %v, want %v", tt.name, tt.err, got, tt.want)
		}
	}
}
