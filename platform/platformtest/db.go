package platformtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"log/slog"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/migrations"
	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/pg"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

// DSN returns a fresh database, migrated, those modules included. At the end of the
// test its Invariants are checked and it is dropped.
func DSN(t testing.TB, modules ...platform.Module) string {
	t.Helper()
	reg := platform.NewRegistry()
	hash := sha256.New()
	hash.Write([]byte(buildHash()))
	for _, m := range modules {
		if err := reg.Add(m); err != nil {
			t.Fatalf("test database: %v", err)
		}
		hash.Write([]byte(m.Name))
	}
	for _, m := range reg.Modules() {
		if err := hashFiles(hash, m.Migrations); err != nil {
			t.Fatalf("test database: module %s: %v", m.Name, err)
		}
	}
	migrate := func(ctx context.Context, dsn string) error {
		_, err := pg.Migrate(ctx, dsn, slog.New(slog.DiscardHandler), reg.Modules()...)
		return err
	}
	dsn := pgtest.Database(t, migrate, hex.EncodeToString(hash.Sum(nil)))
	direct := pgtest.Direct(t, dsn)
	if err := likeATeams(t.Context(), direct); err != nil {
		t.Fatalf("test database: %v", err)
	}
	t.Cleanup(func() {
		t.Helper()
		pool, err := pgxpool.New(context.Background(), direct)
		if err != nil {
			t.Errorf("invariants: %v", err)
			return
		}
		defer pool.Close()
		Invariants(t, pool)
	})
	return dsn
}

// DB is DSN with a pool, closed at the end of the test.
func DB(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return Pool(t, DSN(t))
}

// Pool opens a pool on a database and closes it at the end of the test.
func Pool(t testing.TB, dsn string) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatalf("test database: %v", err)
	}
	cfg.MaxConns = 10
	pgtest.Pooled(cfg.ConnConfig)
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), cfg)
	if err != nil {
		t.Fatalf("test database: %v", err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// likeATeams makes a test's own tables be in public. The test server's superuser is
// pgmill, and a schema of its user's name would come first, for our functions' mistakes
// too.
func likeATeams(ctx context.Context, dsn string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, "do $$ begin execute format('alter database %I set search_path = public', current_database()); end $$")
	return err
}

// buildHash changes with whatever pg.Migrate does.
var buildHash = sync.OnceValue(func() string {
	h := sha256.New()
	_ = hashFiles(h, migrations.FS)
	return pg.CodeHash() + hex.EncodeToString(h.Sum(nil)[:12])
})

func hashFiles(h io.Writer, files fs.FS) error {
	return fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, path)
		_, _ = h.Write([]byte(path))
		_, _ = h.Write(text)
		return err
	})
}
