package host

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

// privateHome is a directory for a private Postgres, removed once that has ended.
// Not t.TempDir: the user that the server runs as could not get there.
func privateHome(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pgmill-host-test-*")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
			_, err := os.Stat(filepath.Join(dir, "data", "postmaster.pid"))
			if errors.Is(err, fs.ErrNotExist) {
				break
			}
			time.Sleep(50 * time.Millisecond) // another process ends: nothing to wait on
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Log(err)
		}
	})
	return dir
}

// With nothing set up, serve starts a private Postgres, migrates it, works and says
// where things are; `host url` joins it.
func TestServeNeedsNothing(t *testing.T) {
	t.Parallel()
	if os.Getenv("PGMILL_TEST_DSN") != "" {
		t.Skip("this machine may have no PostgreSQL of its own")
	}
	pgtest.Server(t) // skips where there is none
	environ := []string{"PGMILL_DATA_DIR=" + privateHome(t)}
	host := start(t, withFunctions(t, "a.one"), environ, "serve")
	host.becomes(200, "")
	host.out.await(t, `(psql "\$\(host url --data-dir [^)]*\)")`)
	host.out.await(t, `(profile local \(non-HA\), 1 functions)`)
	sh := shell{t: t, reg: platform.NewRegistry(), environ: environ}
	code, url, stderr := sh.run("url")
	if code != exitOK {
		t.Fatalf("url: %d, %s", code, stderr)
	}
	conn, err := pgx.Connect(t.Context(), strings.TrimSpace(url))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	var name string
	if err := conn.QueryRow(t.Context(), "select name from mill.subscriptions").Scan(&name); err != nil || name != "a.one" {
		t.Errorf("mill.subscriptions: %q, %v", name, err)
	}
	password := conn.Config().Password
	host.signal()
	host.exits(exitOK, 12*time.Second)
	if password == "" || strings.Contains(host.out.String()+host.errs.String(), password) {
		t.Errorf("the password is in what the host printed")
	}
}

// A command that has to start the private Postgres says so, and how it ends; one that
// finds it says nothing.
func TestACommandSaysThatItStartsAPostgres(t *testing.T) {
	t.Parallel()
	if os.Getenv("PGMILL_TEST_DSN") != "" {
		t.Skip("this machine may have no PostgreSQL of its own")
	}
	pgtest.Server(t) // skips where there is none
	cfg := Config{DataDir: privateHome(t)}
	said := func() string {
		var errs output
		o := &options{stderr: &errs}
		_, done, err := o.open(t.Context(), cfg, 3*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(done)
		return errs.String()
	}
	want := "host: started a private Postgres in " + cfg.DataDir + "; it ends in 0.05 minutes"
	if first, second := said(), said(); !strings.HasPrefix(first, want) || second != "" {
		t.Errorf("said %q and then %q; want %q and nothing", first, second, want)
	}
}
