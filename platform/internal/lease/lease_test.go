package lease_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/platform/internal/lease"
	"github.com/pgmill/pgmill/platform/platformtest"
	"github.com/pgmill/pgmill/platform/platformtest/fault"
)

// running is a lease that renews itself.
type running struct {
	*lease.Lease
	t        *testing.T
	outcomes chan string // of renewals
	ended    chan error
	stop     context.CancelFunc
}

// keep registers a lease on the database that pool sees and runs it to the test's end.
func keep(t *testing.T, pool *pgxpool.Pool, ttl time.Duration) *running {
	t.Helper()
	r := &running{t: t, outcomes: make(chan string, 1000), ended: make(chan error, 1)}
	r.Lease = &lease.Lease{Pool: pool, ID: lease.NewID(), TTL: ttl, Version: "test", Log: slog.New(slog.DiscardHandler),
		Renewed: func(outcome string) { r.outcomes <- outcome }}
	if err := r.Register(t.Context(), []string{"a.one"}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	r.stop = cancel
	go func() { r.ended <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-r.ended
	})
	return r
}

// renews waits for a renewal that ended so.
func (r *running) renews(outcome string) {
	r.t.Helper()
	late := time.After(patience)
	for {
		select {
		case got := <-r.outcomes:
			if got == outcome {
				return
			}
		case <-late:
			r.t.Fatalf("no renewal was %s within %v", outcome, patience)
		}
	}
}

// lost waits for the end of held work.
func (r *running) lost(held context.Context) {
	r.t.Helper()
	select {
	case <-held.Done():
		if cause := context.Cause(held); !errors.Is(cause, lease.ErrLost) {
			r.t.Fatalf("held work ended with %v, want ErrLost", cause)
		}
	case <-time.After(patience):
		r.t.Fatal("held work was not ended")
	}
}

func wire(t *testing.T, dsn string) (*fault.Wire, *pgxpool.Pool) {
	t.Helper()
	w := fault.NewWire(t, dsn)
	return w, platformtest.Pool(t, w.DSN)
}

// A host that cannot renew ends its own work before anybody may take it: it counts
// from before the renewal was sent, so on a slow wire it stops while the database
// still calls it live. A cut wire and a frozen one are told apart by nobody (F38).
func TestWorkEndsBeforeTheLeaseDoes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		broken func(w *fault.Wire)
	}{
		{"the wire is cut", (*fault.Wire).Cut},
		{"the wire is frozen, no RST", (*fault.Wire).Freeze},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dsn := platformtest.DSN(t)
			direct := platformtest.Pool(t, dsn)
			w, pool := wire(t, dsn)
			w.Slow(400 * time.Millisecond)
			l := keep(t, pool, 6*time.Second)
			l.renews("ok") // the first took long: it had to connect
			held := l.Held()
			l.renews("ok")
			if held.Err() != nil {
				t.Fatal("held work ended while the lease was renewed")
			}
			tt.broken(w)
			l.lost(held)
			left := one[float64](t, direct, `select extract(epoch from last_seen + ttl - clock_timestamp())::float8 from pgmill.instance where id = $1`, l.ID)
			if left <= 0 {
				t.Errorf("work ended %.3f s after the lease", -left)
			}
			if !one[bool](t, direct, `select live from mill.instances where id = $1`, l.ID) {
				t.Error("not live any more when the work ended")
			}
			platformtest.WaitFor(t, direct, `select not live from mill.instances where id = $1`, l.ID)
			l.renews("failed")
			w.Mend()
			l.renews("broken")
			if l.Held().Err() != nil {
				t.Error("after the wire is mended, new work has no lease")
			}
			l.renews("ok")
		})
	}
}

// A lease that had run out is renewed, but what ran under it ends, and it counts as
// unbroken only from now on: since restarts.
func TestBrokenLeaseEndsHeldWork(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	l := keep(t, pool, 900*time.Millisecond)
	l.renews("ok")
	held := l.Held()
	exec(t, pool, `update pgmill.instance set since = now() - interval '1 h' where id = $1`, l.ID)
	l.renews("ok")
	if held.Err() != nil {
		t.Fatal("held work ended while the lease was renewed in time")
	}
	exec(t, pool, `update pgmill.instance set last_seen = now() - interval '1 min' where id = $1`, l.ID)
	l.renews("broken")
	l.lost(held)
	if !one[bool](t, pool, `select since > now() - interval '1 min' from pgmill.instance where id = $1`, l.ID) {
		t.Error("since is from before the lease was broken")
	}
	again := l.Held()
	l.renews("ok")
	if again.Err() != nil {
		t.Error("work begun after the broken lease ended, too")
	}
}

// T4, T5: a process whose instance was deregistered under it stops, and does not
// come back by renewing.
func TestDeregisteredUnderItsFeet(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	l := keep(t, pool, 600*time.Millisecond)
	l.renews("ok")
	held := l.Held()
	exec(t, pool, `update pgmill.instance set deregistered_at = now() where id = $1`, l.ID)
	l.lost(held)
	select {
	case err := <-l.ended:
		if !errors.Is(err, lease.ErrDeregistered) {
			t.Errorf("Run = %v, want ErrDeregistered", err)
		}
		l.ended <- err
	case <-time.After(patience):
		t.Error("Run goes on")
	}
	if one[bool](t, pool, `select live from mill.instances where id = $1`, l.ID) {
		t.Error("it is live")
	}
}

// T3: leaving only shortens the wait: the row stays, deregistered.
func TestLeavingDeregisters(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	l := keep(t, pool, 10*time.Second)
	if !one[bool](t, pool, `select live from mill.instances where id = $1`, l.ID) {
		t.Error("not live after Register")
	}
	l.stop()
	err := <-l.ended
	l.ended <- err
	if err != nil || one[bool](t, pool, `select live from mill.instances where id = $1`, l.ID) {
		t.Errorf("Run = %v; still live", err)
	}
}

// What a process cannot know by itself it is told at each renewal, in the same call.
func TestRenewalCarriesReasonsAndHandsBack(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	returned := make(chan int, 10)
	l := &lease.Lease{Pool: pool, ID: lease.NewID(), TTL: 600 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
		Known: func() []int64 { return []int64{7} }, Why: func() []string { return []string{"listen_unavailable"} },
		Returned: func(n int) { returned <- n }}
	if err := l.Register(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	exec(t, pool, `insert into pgmill.river_job (id, args, kind, queue, max_attempts, state, attempt, attempted_at, attempted_by)
		select n, jsonb_build_object('n', n), 'k', 'subscription', 1, 'running', 1, now() - interval '10 s', array[$1] from generate_series(6, 8) n`, l.ID)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	select {
	case n := <-returned:
		if n != 2 {
			t.Errorf("%d claims handed back, want 2", n)
		}
	case <-time.After(patience):
		t.Error("nothing was handed back")
	}
	platformtest.WaitFor(t, pool, `select (select array_agg(id) from pgmill.river_job) = '{7}' and reasons = '{listen_unavailable}' from pgmill.instance where id = $1`, l.ID)
	exec(t, pool, `delete from pgmill.river_job`)
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run = %v", err)
	}
}
