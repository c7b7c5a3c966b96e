package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
)

// slow is a schedule whose ticks wait until the test lets them go; running is how
// many do.
func (w *world) slow(overlap platform.Overlap, together int) (s platform.Schedule, running *atomic.Int32, release func()) {
	gate := make(chan struct{})
	running = new(atomic.Int32)
	s = w.schedule("test.one", func(s *platform.Schedule) {
		s.Overlap, s.Together = overlap, together
		s.Handle = func(ctx context.Context, tx pgx.Tx, t platform.Tick) error {
			running.Add(1)
			defer running.Add(-1)
			select {
			case <-gate:
			case <-ctx.Done():
				return ctx.Err()
			}
			return effect(ctx, tx, t)
		}
	})
	return s, running, func() { close(gate) }
}

// begun waits until so many handlers run.
func (w *world) begun(running *atomic.Int32, n int32) {
	w.Helper()
	w.wait("select $1::int >= 0 and pg_sleep(0) is not null", n)
	for i := 0; running.Load() < n; i++ {
		if i > 2000 {
			w.Fatalf("%d handlers run, want %d", running.Load(), n)
		}
		w.exec("select pg_sleep(0.005)")
	}
}

// fire makes a schedule due at a time of its own and waits until it has moved on.
func (w *world) fire(nth int) {
	w.Helper()
	w.due("test.one", fmt.Sprintf("%d seconds", 20-nth))
	w.wait("select next_at > now() from pgmill.schedule where name = 'test.one'")
}

func TestAnOverlappingTickIsSkipped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s, running, release := w.slow(platform.SkipOverlap, 0)
	w.host(s)
	w.fire(1)
	w.begun(running, 1)
	w.want("pending", "select concat_ws(' ', last_state, reason) from mill.schedules")
	w.fire(2)
	w.want("skipped overlap", "select concat_ws(' ', last_state, reason) from mill.schedules")
	release()
	w.done("test.one")
	w.fire(3)
	w.done("test.one")
	w.want("2", "select count(*)::text from effect")
	w.want("done", "select concat_ws(' ', last_state, reason) from mill.schedules")
}

func TestAnOverlappingTickWaitsItsTurn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s, running, release := w.slow(platform.QueueOverlap, 0)
	w.host(s)
	for i := range 3 {
		w.fire(i)
		w.begun(running, 1)
	}
	w.wait("select lag_events >= 2 from mill.subscriptions")
	if n := running.Load(); n != 1 {
		t.Errorf("%d run at once, want 1", n)
	}
	release()
	w.done("test.one")
	w.want("3 t", "select concat_ws(' ', count(*), array_agg(at order by at) = array_agg(at order by n)) from effect")
}

func TestOverlappingTicksRunTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s, running, release := w.slow(platform.AllowOverlap, 3)
	w.host(s)
	for i := range 3 {
		w.fire(i)
		w.begun(running, int32(i+1))
	}
	w.fire(3)
	w.want("4 3", "select concat_ws(' ', (select count(*) from pgmill.event), (select count(*) from mill.subscriptions))")
	if n := running.Load(); n != 3 {
		t.Errorf("%d run at once, want 3", n)
	}
	release()
	w.done("test.one")
	w.want("4 4", "select concat_ws(' ', count(*), count(distinct at)) from effect")
}

// A tick whose attempts are spent is parked and holds up none of the later ones.
func TestAFailedTickIsParkedAndTheNextGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var calls atomic.Int32
	w.host(w.schedule("test.one", func(s *platform.Schedule) {
		s.MaxAttempts = 1
		s.Handle = func(ctx context.Context, tx pgx.Tx, t platform.Tick) error {
			if calls.Add(1) == 1 {
				return platform.Because("test.broken", errors.New("not today"))
			}
			return effect(ctx, tx, t)
		}
	}))
	w.fire(1)
	w.wait("select last_state = 'parked' and reason = 'test.broken' from mill.schedules")
	w.done("test.one")
	w.fire(2)
	w.done("test.one")
	w.want("done", "select concat_ws(' ', last_state, reason) from mill.schedules")
	w.exec("select mill.unpark('test.one')")
	w.wait("select count(*) = 2 from effect")
	w.done("test.one")
}

func TestARetriedTickIsShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var calls atomic.Int32
	w.host(w.schedule("test.one", func(s *platform.Schedule) {
		s.Overlap = platform.SkipOverlap
		s.Handle = func(ctx context.Context, tx pgx.Tx, t platform.Tick) error {
			if calls.Add(1) <= 2 { // once more alone
				return errors.New("not today")
			}
			return effect(ctx, tx, t)
		}
	}))
	w.exec(`create function patience() returns trigger language plpgsql as $$ begin new.next_retry_at := new.next_retry_at + interval '1 hour'; return new; end $$;
		create trigger patience before update of next_retry_at on pgmill.shard for each row when (new.next_retry_at is not null) execute function patience()`)
	w.fire(1)
	w.wait("select last_state = 'retrying' and reason = 'handler_error' from mill.schedules")
	w.fire(2)
	w.want("skipped overlap", "select concat_ws(' ', last_state, reason) from mill.schedules")
	w.exec("alter table pgmill.shard disable trigger patience; update pgmill.shard set next_retry_at = now()")
	w.done("test.one")
	w.want("1", "select count(*)::text from effect")
}
