package fault_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/platform/platformtest/fault"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

func answers(t *testing.T, dsn string, within time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "select 1")
	return err
}

func TestWireCutsFreezesAndMends(t *testing.T) {
	t.Parallel()
	w := fault.NewWire(t, pgtest.Server(t))
	conn, err := pgx.Connect(t.Context(), w.DSN)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	w.Freeze()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := conn.Exec(ctx, "select 1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a frozen wire answers: %v", err)
	}
	w.Mend()
	if err := answers(t, w.DSN, 5*time.Second); err != nil {
		t.Errorf("after Mend: %v", err)
	}
	w.Cut()
	if err := answers(t, w.DSN, 5*time.Second); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a cut wire: %v", err)
	}
	w.Mend()
	w.Slow(200 * time.Millisecond)
	began := time.Now()
	if err := answers(t, w.DSN, 10*time.Second); err != nil || time.Since(began) < 400*time.Millisecond {
		t.Errorf("a slow wire answers within %v: %v", time.Since(began), err)
	}
}

func TestWireForgetsWhatIsOpen(t *testing.T) {
	t.Parallel()
	r := fault.NewWire(t, pgtest.Server(t))
	conn, err := pgx.Connect(t.Context(), r.DSN)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), "select 1"); err != nil {
		t.Fatal(err)
	}
	r.Forget()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := conn.Exec(ctx, "select 1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a forgotten connection answers: %v", err)
	}
	if err := answers(t, r.DSN, 5*time.Second); err != nil {
		t.Errorf("a new connection: %v", err)
	}
}

func TestServerPausesDiesAndStaysAway(t *testing.T) {
	t.Parallel()
	s := fault.NewServer(t, nil)
	pool, err := pgxpool.New(t.Context(), s.DSN)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(t.Context(), "create table kept (n int)"); err != nil {
		t.Fatal(err)
	}
	s.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := pool.Exec(ctx, "select 1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a paused server answers: %v", err)
	}
	s.Resume()
	if _, err := pool.Exec(t.Context(), "insert into kept values (1)"); err != nil {
		t.Errorf("after Resume: %v", err)
	}
	var before time.Time
	if err := pool.QueryRow(t.Context(), "select pg_postmaster_start_time()").Scan(&before); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for deadline := time.Now().Add(20 * time.Second); ; <-look.C {
		var n int
		var started time.Time
		err := pool.QueryRow(t.Context(), "select count(*), pg_postmaster_start_time() from kept").Scan(&n, &started)
		if err == nil && started.After(before) {
			if n != 1 {
				t.Errorf("%d rows survived Kill, want 1", n)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the killed server does not come back: %v", err)
		}
	}
	s.Stop()
	if err := answers(t, s.DSN, 5*time.Second); err == nil {
		t.Errorf("a stopped server answers")
	}
	dsn := s.DSN
	s.Start()
	if err := answers(t, dsn, 5*time.Second); err != nil {
		t.Errorf("after Start: %v", err)
	}
}
