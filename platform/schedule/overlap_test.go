package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
)

// slow is a schedule whose ticks wait until the test lets them go.
type slow struct {
	platform.Schedule
	running atomic.Int32
	began   chan struct{} // a handler has begun
	gate    chan struct{} // closed: they go on
}

func (w *world) slow(overlap platform.Overlap, together int) *slow {
	s := &slow{began: make(chan struct{}, 100), gate: make(chan struct{})}
	s.Schedule = w.schedule("test.one", func(d *platform.Schedule) {
		d.Overlap, d.Together = overlap, together
		d.Handle = func(ctx context.Context, tx pgx.Tx, t platform.Tick) error {
			s.running.Add(1)
			defer s.running.Add(-1)
			s.began <- struct{}{}
			select {
			case <-s.gate:
			case <-ctx.Done():
				return ctx.Err()
			}
			return effect(ctx, tx, t)
		}
	})
	return s
}

// begun waits until so many handlers run.
func (w *world) begun(s *slow, n int32) {
	w.Helper()
	late := time.After(20 * time.Second)
	for s.running.Load() < n {
		select {
		case <-s.began:
		case <-late:
			w.Fatalf("%d handlers run, want %d", s.running.Load(), n)
		}
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
	s := w.slow(platform.SkipOverlap, 0)
	w.host(s.Schedule)
	w.fire(1)
	w.begun(s, 1)
	w.want("pending", "select concat_ws(' ', last_state, reason) from mill.schedules")
	w.fire(2)
	w.want("skipped overlap", "select concat_ws(' ', last_state, reason) from mill.schedules")
	close(s.gate)
	w.done("test.one")
	w.fire(3)
	w.done("test.one")
	w.want("2", "select count(*)::text from effect")
	w.want("done", "select concat_ws(' ', last_state, reason) from mill.schedules")
}

func TestAnOverlappingTickWaitsItsTurn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.slow(platform.QueueOverlap, 0)
	w.host(s.Schedule)
	for i := range 3 {
		w.fire(i)
		w.begun(s, 1)
	}
	w.wait("select lag_events >= 2 from mill.subscriptions")
	if n := s.running.Load(); n != 1 {
		t.Errorf("%d run at once, want 1", n)
	}
	close(s.gate)
	w.done("test.one")
	w.want("3 t", "select concat_ws(' ', count(*), array_agg(at order by at) = array_agg(at order by n)) from effect")
}

func TestOverlappingTicksRunTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.slow(platform.AllowOverlap, 3)
	w.host(s.Schedule)
	for i := range 3 {
		w.fire(i)
		w.begun(s, int32(i+1))
	}
	w.fire(3)
	w.want("4 3", "select concat_ws(' ', (select count(*) from pgmill.event), (select count(*) from mill.subscriptions))")
	if n := s.running.Load(); n != 3 {
		t.Errorf("%d run at once, want 3", n)
	}
	close(s.gate)
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
