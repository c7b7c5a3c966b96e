package platformtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"log/slog"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/migrations"
	"github.com/pgmill/pgmill/platform/pg"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

// DSN returns a fresh, migrated database. At the end of the test its Invariants are
// checked and it is dropped.
func DSN(t testing.TB) string {
	t.Helper()
	dsn := pgtest.Database(t, migrate, buildHash())
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

func migrate(ctx context.Context, dsn string) error {
	_, err := pg.Migrate(ctx, dsn, slog.New(slog.DiscardHandler))
	return err
}

// buildHash changes with whatever pg.Migrate does.
var buildHash = sync.OnceValue(func() string {
	h := sha256.New()
	_ = fs.WalkDir(migrations.FS, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(migrations.FS, path)
		h.Write([]byte(path))
		h.Write(text)
		return err
	})
	return pg.CodeHash() + hex.EncodeToString(h.Sum(nil)[:12])
})
