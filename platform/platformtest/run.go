package platformtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/host"
	"github.com/pgmill/pgmill/platform/internal/claim"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

// Host starts a worker on the database, in this process and on a registry of its
// own, and waits until it takes work. It is stopped at the end of the test. For
// functions of other kinds give HostWith a registry.
func Host(t testing.TB, dsn string, subs ...platform.Subscription) *host.Worker {
	t.Helper()
	return HostWith(t, &host.Worker{Database: dsn}, subs...)
}

// HostWith is Host for a worker with settings. Where w leaves them at zero its lease
// lives two seconds, it polls five times a second, has five seconds of grace and
// logs to the test.
func HostWith(t testing.TB, w *host.Worker, subs ...platform.Subscription) *host.Worker {
	t.Helper()
	w.LeaseTTL = cmp.Or(w.LeaseTTL, 2*time.Second)
	w.Poll = cmp.Or(w.Poll, 200*time.Millisecond)
	w.Grace = cmp.Or(w.Grace, 5*time.Second)
	w.ListenURL = cmp.Or(w.ListenURL, pgtest.Listen(t, w.Database))
	if w.Registry == nil {
		w.Registry = platform.NewRegistry()
	}
	for _, s := range subs {
		if err := w.Registry.Add(s); err != nil {
			t.Fatalf("register: %v", err)
		}
	}
	out := &untilEnd{w: t.Output()}
	if w.Log == nil {
		w.Log = host.NewLogger(out, "text", slog.LevelInfo, w.Database)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("host: %v", err)
			}
		case <-time.After(w.Grace + 15*time.Second):
			t.Errorf("the host did not end within its grace time")
		}
	})
	stops.Store(w, stop)
	t.Cleanup(func() {
		stop()
		stops.Delete(w)
		out.end()
	})

	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	late := time.NewTimer(patience)
	defer late.Stop()
	for w.ID() == "" || len(w.NotReady()) > 0 {
		select {
		case <-look.C:
		case err := <-ended:
			ended <- nil
			t.Fatalf("the host ended before it was ready: %v", err)
		case <-late.C:
			t.Fatalf("the host is not ready: %v", w.NotReady())
		}
	}
	return w
}

var stops sync.Map // *host.Worker → func()

// Stop drains a worker that Host started, and returns when it has ended.
func Stop(t testing.TB, w *host.Worker) {
	t.Helper()
	stop, ok := stops.Load(w)
	if !ok {
		t.Fatalf("Stop: not a worker of Host, or of a test that is over")
	}
	stop.(func())()
}

// untilEnd passes on what is logged until the test is over.
type untilEnd struct {
	mu   sync.Mutex
	w    io.Writer
	over bool
}

func (u *untilEnd) Write(b []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.over {
		return len(b), nil
	}
	return u.w.Write(b)
}

func (u *untilEnd) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.over = true
}

// Emit emits events in a transaction of their own and returns their ids.
func Emit(t testing.TB, pool *pgxpool.Pool, events ...platform.NewEvent) []int64 {
	t.Helper()
	var ids []int64
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) (err error) {
		ids, err = platform.Emit(t.Context(), tx, events...)
		return err
	})
	if err != nil {
		t.Fatalf("emit: %v", err)
	}
	return ids
}

// Handle runs one function on one event, no host needed: it emits e, runs the
// handler as a host would, in a transaction that is committed if the handler
// returns nil and rolled back otherwise, and returns the handler's error. A panic,
// a swallowed failure of a statement and a failed commit are errors, too. If the
// function's module is in the database (DSN), the handler has its role. No cursor
// moves. The test fails if the declaration is bad or does not listen to e.
func Handle(t testing.TB, pool *pgxpool.Pool, s platform.Subscription, e platform.NewEvent) error {
	t.Helper()
	reg := platform.NewRegistry()
	if err := reg.Add(s); err != nil {
		t.Fatalf("register: %v", err)
	}
	s = platform.Of[platform.Subscription](reg)[0]
	if !s.Matches(e.Type) {
		t.Fatalf("%s does not listen to %s, only to %v", s.Name, e.Type, s.Events)
	}
	return handle(t, pool, s, positioned(t, pool, Emit(t, pool, e)[0]))
}

// handle runs a function on one event in a transaction of its own.
func handle(t testing.TB, pool *pgxpool.Pool, s platform.Subscription, event platform.Event) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), s.Timeout)
	defer cancel()
	conn, err := pool.Acquire(ctx)
	if err != nil {
		t.Fatalf("handle: %v", err)
	}
	defer conn.Release()
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "select set_config('role', role, true) from mill.modules where name = $1", s.Module); err != nil {
			return err
		}
		return call(ctx, s, claim.NewTx(conn.Conn()), event)
	})
}

func call(ctx context.Context, s platform.Subscription, tx *claim.Tx, e platform.Event) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = platform.Because(platform.ReasonPanic, fmt.Errorf("panic: %v", v))
		}
	}()
	if s.HandleBatch != nil {
		err = s.HandleBatch(ctx, tx, []platform.Event{e})
	} else {
		err = s.Handle(platform.WithTrace(ctx, e.TraceID), tx, e)
	}
	if err == nil && tx.Conn().PgConn().TxStatus() != 'T' {
		err = errors.New("the handler went on after a failed statement, or ended the transaction itself")
	}
	return err
}

// positioned is an event as handlers get it, with its place in the order.
func positioned(t testing.TB, pool *pgxpool.Pool, id int64) platform.Event {
	t.Helper()
	WaitFor(t, pool, `select pgmill.advance() is not null and exists (select from pgmill.log where event_id = $1)`, id)
	e := platform.Event{ID: id}
	err := pool.QueryRow(t.Context(), `
		select l.pos, e.type, e.target, coalesce(e.key, ''), e.scope, coalesce(e.trace_id, ''), e.emitted_at, e.data
		from pgmill.event e
		join pgmill.log l on l.event_id = e.id
		where e.id = $1`, id).Scan(&e.Pos, &e.Type, &e.Target, &e.Key, &e.Scope, &e.TraceID, &e.EmittedAt, &e.Data)
	if err != nil {
		t.Fatalf("read the event: %v", err)
	}
	return e
}
