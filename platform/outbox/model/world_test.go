package model

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/migrations"
	"github.com/pgmill/pgmill/platform/pg"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

// world is one database with everything in it, and around it an idle writer in
// another database and an event in a prepared transaction.
type world struct {
	dsn   string
	other string // DSN of another database of the cluster
	pool  *pgxpool.Pool
	gid   string // of the prepared transaction
	held  int64  // the event in it
	idle  *pgx.Conn
}

// newWorld makes a migrated database. It does not use platformtest, whose checks at
// the end of a test fail it: some of our worlds are meant to be wrong.
func newWorld(t testing.TB) *world {
	t.Helper()
	h := sha256.New()
	_ = fs.WalkDir(migrations.FS, ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			text, _ := fs.ReadFile(migrations.FS, path)
			h.Write(text)
		}
		return err
	})
	w := &world{}
	w.dsn = pgtest.Database(t, func(ctx context.Context, dsn string) error {
		_, err := pg.Migrate(ctx, dsn, nil)
		return err
	}, "model "+pg.CodeHash()+hex.EncodeToString(h.Sum(nil)))
	w.other = pgtest.Database(t, nil, "")
	cfg, err := pgxpool.ParseConfig(w.dsn)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 40
	pgtest.Pooled(cfg.ConnConfig)
	w.pool, err = pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.pool.Close)
	w.must(t, `
		create table account (key text primary key, n bigint not null default 0);
		insert into account (key) select 'k' || i from generate_series(1, 8) i;
		create table chatter (x int);
		create table effect (seq bigint generated always as identity, subscription text, event bigint, pos bigint, key text, n bigint);
		-- Now and then a handler's transaction fails at its commit, for the sake of another's, say.
		create function commit_fails() returns trigger language plpgsql as $$
		begin
		  if random() < 0.004 then raise exception using errcode = '40001', message = 'by chance'; end if;
		  return null;
		end $$;
		create constraint trigger commit_fails after insert on effect deferrable initially deferred for each row execute function commit_fails();
		-- Where each shard began.
		create table began (subscription text, shard int, pos bigint);
		create function note_began() returns trigger language plpgsql as $$
		begin
		  if new.n = 0 then insert into began values (new.subscription, new.shard, new.pos); end if;
		  return null;
		end $$;
		create trigger note_began after insert on pgmill.cursor for each row execute function note_began();`)
	return w
}

func (w *world) must(t testing.TB, query string, args ...any) {
	t.Helper()
	if _, err := w.pool.Exec(t.Context(), query, args...); err != nil {
		t.Fatalf("%.200s: %v", query, err)
	}
}

func ask[T any](t testing.TB, w *world, query string, args ...any) T {
	t.Helper()
	var v T
	if err := w.pool.QueryRow(t.Context(), query, args...).Scan(&v); err != nil {
		t.Fatalf("%.200s: %v", query, err)
	}
	return v
}

// disturb leaves a writer idle in the other database and an event prepared in ours.
func (w *world) disturb(t testing.TB) {
	t.Helper()
	ctx := t.Context()
	idle, err := pgx.Connect(ctx, pgtest.Direct(t, w.other))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = idle.Close(context.Background()) })
	if _, err := idle.Exec(ctx, `create table chatter (x int); begin; insert into chatter values (1)`); err != nil {
		t.Fatal(err)
	}
	w.idle = idle
	conn, err := pgx.Connect(ctx, pgtest.Direct(t, w.dsn))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	w.gid = fmt.Sprintf("model-%d", conn.PgConn().PID())
	if _, err := conn.Exec(ctx, `begin; set local pgmill.quiet = on`); err != nil {
		t.Fatal(err)
	}
	if err := conn.QueryRow(ctx, `select mill.emit('model.w', 'prepared')`).Scan(&w.held); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(ctx, `prepare transaction '`+w.gid+`'`); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // or the database cannot be dropped
		_, _ = w.pool.Exec(context.Background(), `rollback prepared '`+w.gid+`'`)
	})
}

// calm ends the disturbance; the prepared event is committed.
func (w *world) calm(t testing.TB, h *history) {
	t.Helper()
	w.must(t, `commit prepared '`+w.gid+`'`)
	h.commit(record{id: w.held})
	if _, err := w.idle.Exec(t.Context(), `rollback`); err != nil {
		t.Fatal(err)
	}
}

// within asks until the answer is true, for d at the most.
func (w *world) within(t testing.TB, d time.Duration, query string, args ...any) bool {
	t.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	late := time.After(d)
	for {
		if ask[bool](t, w, query, args...) {
			return true
		}
		select {
		case <-look.C:
		case <-late:
			return false
		}
	}
}
