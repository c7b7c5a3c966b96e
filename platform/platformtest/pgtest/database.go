package pgtest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgmill/pgmill/migrations"
)

// The names of our databases; what bears one and is old is dropped.
const (
	templatePrefix = "pgmill_template_"
	clonePrefix    = "pgmill_test_"
)

// Database returns the DSN of a fresh database, dropped at the end of the test
// or, if the test failed, kept for a day, its name logged. It is a clone of a
// template that migrate makes once per hash: the hash must change whenever what
// migrate does changes. migrate must close its connections; nil leaves the
// template empty. With PGMILL_TEST_POOLER the DSN goes through a pooler, see Direct.
func Database(t testing.TB, migrate func(ctx context.Context, dsn string) error, hash string) string {
	t.Helper()
	ctx := t.Context()
	server := Server(t)
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		t.Fatalf("test server: %v", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	pruneOnce.Do(func() { prune(ctx, conn) })
	template := templatePrefix + key(hash)
	name := clonePrefix + strings.ToLower(rand.Text()[:12])
	if err := clone(ctx, conn, name, template, func() error {
		return makeTemplate(ctx, conn, server, template, migrate)
	}); err != nil {
		t.Fatalf("test database: %v", err)
	}
	t.Cleanup(func() { drop(t, server, name) })
	dsn, err := withDatabase(server, name)
	if err != nil {
		t.Fatalf("test database: %v", err)
	}
	return through(t, dsn)
}

// key names a template: by the caller's hash and by this build's migrations, which most
// callers mean.
func key(hash string) string {
	h := sha256.New()
	h.Write([]byte(hash))
	names, _ := fs.Glob(migrations.FS, "*.sql")
	for _, name := range names {
		text, _ := fs.ReadFile(migrations.FS, name)
		h.Write([]byte(name))
		h.Write(text)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// clone creates name from template, and makes the template first if there is
// none. Postgres locks the template while it copies: there is nothing to race.
func clone(ctx context.Context, conn *pgx.Conn, name, template string, make func() error) error {
	create := fmt.Sprintf(`create database %s template %s`, quoted(name), quoted(template))
	_, err := conn.Exec(ctx, create)
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == "3D000" { // no such database
		if err := make(); err != nil {
			return err
		}
		_, err = conn.Exec(ctx, create)
	}
	if err != nil {
		return fmt.Errorf("clone %s: %w", template, err)
	}
	return nil
}

// makeTemplate migrates a new database and gives it the template's name when it
// is complete. All test processes that want one wait for the first.
func makeTemplate(ctx context.Context, conn *pgx.Conn, server, template string, migrate func(context.Context, string) error) error {
	if _, err := conn.Exec(ctx, `select pg_advisory_lock(hashtext($1))`, template); err != nil {
		return err
	}
	defer conn.Exec(context.WithoutCancel(ctx), `select pg_advisory_unlock(hashtext($1))`, template)
	var exists bool
	err := conn.QueryRow(ctx, `select exists (select from pg_database where datname = $1)`, template).Scan(&exists)
	if exists || err != nil {
		return err
	}
	unfinished := template + "_new"
	dsn, err := withDatabase(server, unfinished)
	if err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, `drop database if exists `+quoted(unfinished)+` with (force)`); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, `create database `+quoted(unfinished)); err != nil {
		return err
	}
	if migrate != nil {
		if err := migrate(ctx, dsn); err != nil {
			return fmt.Errorf("migrate the template: %w", err)
		}
	}
	if _, err := conn.Exec(ctx, `alter database `+quoted(unfinished)+` rename to `+quoted(template)); err != nil {
		return fmt.Errorf("finish the template: %w", err)
	}
	return nil
}

// drop ends what a test forgot to close, too. A test's context has ended here.
func drop(t testing.TB, server, name string) {
	t.Helper()
	if t.Failed() {
		t.Logf("test database %s is kept", name)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		t.Errorf("drop test database: %v", err)
		return
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, `drop database if exists `+quoted(name)+` with (force)`); err != nil {
		t.Errorf("drop test database: %v", err)
	}
}

var pruneOnce sync.Once

// prune drops our databases of days before: those of killed and failed tests,
// and templates of old migrations. It is in nobody's way: what is in use stays.
func prune(ctx context.Context, conn *pgx.Conn) {
	rows, _ := conn.Query(ctx, `
		select datname
		from pg_database
		where (starts_with(datname, $1) or starts_with(datname, $2))
		  and (pg_stat_file('base/' || oid || '/PG_VERSION', true)).modification < now() - interval '1 day'`,
		templatePrefix, clonePrefix)
	names, _ := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, name := range names {
		_, _ = conn.Exec(ctx, `drop database if exists `+quoted(name))
	}
}

// withDatabase is the DSN of another database on the same server.
func withDatabase(dsn, name string) (string, error) {
	u, err := url.Parse(dsn)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return "", errors.New("PGMILL_TEST_DSN is not a postgres:// URL")
	}
	u.Path = "/" + name
	return u.String(), nil
}

func quoted(name string) string { return pgx.Identifier{name}.Sanitize() }
