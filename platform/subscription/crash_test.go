package subscription

import (
	"context"
	"errors"
	"log/slog"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/internal/claim"
	"github.com/pgmill/pgmill/platform/outbox"
	"github.com/pgmill/pgmill/platform/pg"
	"github.com/pgmill/pgmill/platform/platformtest/fault"
)

// A crash of the server takes back positions that a holder has read past, and they
// are given again to other events, before the holder says a word: it must not go by
// what it has read, or those events are lost to it.
func TestPositionsTakenBackByACrashAreReadAgain(t *testing.T) {
	t.Parallel()
	// Nobody flushes in the background what is committed without waiting for the disk.
	server := fault.NewServer(t, map[string]string{"autovacuum": "off"})
	if _, err := pg.Migrate(t.Context(), server.DSN, nil); err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.New(t.Context(), server.DSN)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	exec := func(sql string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	var handled []string
	s := platform.Subscription{Name: "test.one", Events: []string{"mine.*"}, Owners: platform.OwnedBy("test"), From: platform.FromZero,
		Handle: func(_ context.Context, _ pgx.Tx, e platform.Event) error {
			handled = append(handled, e.Target)
			return nil
		}}
	reg := platform.NewRegistry()
	if err := reg.Add(s); err != nil {
		t.Fatal(err)
	}
	feed := &outbox.Feed{Pool: pool}
	e := &Engine{Subscriptions: platform.Of[platform.Subscription](reg), Pool: pool, Control: pool, Feed: feed,
		Held: t.Context, Log: slog.New(slog.DiscardHandler), LeaseTTL: time.Minute}
	e.Init()
	if err := e.Declare(t.Context()); err != nil {
		t.Fatal(err)
	}
	var id int64
	if err := pool.QueryRow(t.Context(), `
		insert into pgmill.river_job (state, attempted_at, attempted_by, args, kind, queue, max_attempts, unique_key, unique_states)
		select 'running', now(), '{me}', '{"shard": 0}', 'subscription:test.one', 'subscription', 1, pgmill.claim_key('test.one', 0), b'01000001'
		returning id`).Scan(&id); err != nil {
		t.Fatal(err)
	}
	look := func() {
		t.Helper()
		if _, err := feed.Look(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	}
	h := newHolder(e, e.Subscriptions[0], claim.Claim{ID: id}, 0)
	if err := h.open(t.Context()); err != nil {
		t.Fatal(err)
	}

	var writer int
	if err := pool.QueryRow(t.Context(), `select pid from pg_stat_activity where backend_type = 'walwriter'`).Scan(&writer); err != nil {
		t.Fatal(err)
	}
	signal := func(s syscall.Signal) {
		t.Helper()
		if err := syscall.Kill(writer, s); err != nil {
			t.Fatal(err)
		}
	}
	// Nobody flushes in the background what is committed without waiting for the disk.
	signal(syscall.SIGSTOP)
	t.Cleanup(func() { _ = syscall.Kill(writer, syscall.SIGCONT) }) // gone, unless the test ended early
	exec(`begin; set local synchronous_commit = off; select mill.emit('other.x', 'o' || g) from generate_series(1, 3) g; commit`)
	look()
	if err := h.batch(t.Context()); err != nil || h.scanned != 3 || h.st.Pos != 0 {
		t.Fatalf("batch = %v; read up to %d, settled at %d; want 3, 0", err, h.scanned, h.st.Pos)
	}
	signal(syscall.SIGKILL)                                         // the server takes it for a crash, and recovers
	for head, crashed := int64(-1), false; !crashed || head != 0; { // the connections of before die
		switch err := pool.QueryRow(t.Context(), `select pgmill.head()`).Scan(&head); {
		case err != nil:
			crashed = true
		case crashed && head > 0:
			t.Fatalf("the head is %d after the crash: this test tests nothing", head)
		}
	}
	exec(`select mill.emit('mine.x', 'm' || g) from generate_series(1, 3) g`)
	look()
	if feed.Head() != 3 {
		t.Fatalf("the head is %d: this test tests nothing", feed.Head())
	}

	if err := h.move(t.Context(), h.scanned); !errors.Is(err, errMoved) {
		t.Errorf("move past positions that were taken back = %v, want errMoved", err)
	}
	h.scanned = 2
	if err := h.batch(t.Context()); !errors.Is(err, errMoved) {
		t.Errorf("batch after positions that were taken back = %v, want errMoved", err)
	}
	h.scanned = 3
	if parked, err := h.park(t.Context(), platform.Event{Pos: 3, Target: "o3"}, 1, platform.ReasonHandlerError); !errors.Is(err, errMoved) {
		t.Errorf("park of a position that was taken back = %v, %v; want errMoved", parked, err)
	}
	if err := h.release(t.Context()); !errors.Is(err, errDone) {
		t.Errorf("release = %v", err)
	}
	var pos int64
	if err := pool.QueryRow(t.Context(), `select max(pos) from pgmill.cursor`).Scan(&pos); err != nil || pos != 0 {
		t.Errorf("the cursor is at %d, %v; want 0", pos, err)
	}
	if len(handled) > 0 {
		t.Errorf("handled %q; want nothing yet", handled)
	}
	if err := pool.QueryRow(t.Context(), `
		insert into pgmill.river_job (state, attempted_at, attempted_by, args, kind, queue, max_attempts, unique_key, unique_states)
		select 'running', now(), '{me}', '{"shard": 0}', 'subscription:test.one', 'subscription', 1, pgmill.claim_key('test.one', 0), b'01000001'
		returning id`).Scan(&h.claim.ID); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(h.open(t.Context()), h.batch(t.Context())); err != nil {
		t.Fatal(err)
	}
	if len(handled) != 3 || handled[0] != "m1" {
		t.Errorf("handled %q; want m1 m2 m3", handled)
	}
}
