package pgtest_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	pgtest.Pooled(cfg)
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func ask[T any](t *testing.T, dsn, sql string, args ...any) T {
	t.Helper()
	return pgtest.Ask[T](t, connect(t, dsn), sql, args...)
}

func TestServerIsASuperusers(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Server(t)
	if got := ask[string](t, dsn, `select current_setting('is_superuser')`); got != "on" {
		t.Errorf("is_superuser = %q, want on", got)
	}
	if other := pgtest.Server(t); other != dsn {
		t.Errorf("a second Server is another server")
	}
}

func TestDatabaseIsMigratedOnceAndEachTestHasItsOwn(t *testing.T) {
	t.Parallel()
	pgtest.Server(t) // skips where there is none
	var migrations atomic.Int32
	migrate := func(ctx context.Context, dsn string) error {
		migrations.Add(1)
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		_, err = conn.Exec(ctx, `create table seen (who int); insert into seen values (0)`)
		return err
	}
	hash := fmt.Sprint(t.Name(), time.Now().UnixNano())
	const clones = 8
	dsns := make([]string, clones)
	t.Run("clones", func(t *testing.T) {
		var all sync.WaitGroup
		for i := range clones {
			all.Go(func() {
				dsns[i] = pgtest.Database(t, migrate, hash)
			})
		}
		all.Wait()
		for i, dsn := range dsns {
			if _, err := connect(t, dsn).Exec(t.Context(), `insert into seen values ($1)`, i+1); err != nil {
				t.Fatal(err)
			}
		}
		for i, dsn := range dsns {
			if got := ask[int](t, dsn, `select sum(who) from seen`); got != i+1 {
				t.Errorf("database %d has rows that sum up to %d", i, got)
			}
		}
	})
	if got := migrations.Load(); got != 1 {
		t.Errorf("migrated %d times, want once", got)
	}
	left := ask[int](t, pgtest.Server(t), `select count(*) from pg_database where datname = any($1)`, names(t, dsns))
	if left != 0 {
		t.Errorf("%d databases are left at the end of their test", left)
	}
}

func names(t *testing.T, dsns []string) []string {
	t.Helper()
	var names []string
	for _, dsn := range dsns {
		config, err := pgx.ParseConfig(dsn)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, config.Database)
	}
	return names
}

func TestDatabaseOfAMigrationThatFailedIsNotATemplate(t *testing.T) {
	t.Parallel()
	pgtest.Server(t) // skips where there is none
	hash := fmt.Sprint(t.Name(), time.Now().UnixNano())
	failing := &recorder{TB: t}
	done := make(chan struct{})
	go func() { // Fatalf ends it
		defer close(done)
		pgtest.Database(failing, func(context.Context, string) error { return context.DeadlineExceeded }, hash)
	}()
	<-done
	if failing.said == "" {
		t.Fatal("Database went on after a failed migration")
	}
	dsn := pgtest.Database(t, nil, hash)
	if got := ask[int](t, dsn, `select 1`); got != 1 {
		t.Errorf("select 1 = %d", got)
	}
}
