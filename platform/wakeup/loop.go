package wakeup

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Found is what one look found.
type Found struct {
	Events int64         // fresh events
	Busy   bool          // another host was at it: look again soon
	Next   time.Duration // when something falls due before the next poll; 0: nothing does
}

// Loop is the one place of a host that looks: when the bell rings, in growing steps
// after it, and at each poll. Fill in the fields.
type Loop struct {
	Look func(ctx context.Context) (Found, error) // cheap: what is new
	Tick func(ctx context.Context) (Found, error) // everything a poll does
	Poll time.Duration                            // 0 means 1 s
	Pool *pgxpool.Pool                            // for windows and for ringing others
	Bell *Bell
	// Others says how many other hosts live; they are rung while emitters are silent.
	Others func() int
	Log    *slog.Logger

	bells   bells
	windows int
}

// Run looks until ctx ends. An error of the database is logged, at most once a
// second, and never ends it.
func (l *Loop) Run(ctx context.Context) error {
	if l.Poll == 0 {
		l.Poll = time.Second
	}
	var idle int
	var lastWord time.Time
	nextTick := time.Now()
	for {
		wait := min(after(idle, l.every()), time.Until(nextTick))
		select {
		case <-ctx.Done():
			return nil
		case n := <-l.Bell.Heard:
			idle = 0
			for range n {
				l.bells.heard(time.Now())
			}
		case <-time.After(wait):
		}
		found, err := l.once(ctx, &nextTick)
		switch {
		case err != nil && ctx.Err() == nil:
			if time.Since(lastWord) > time.Second {
				lastWord = time.Now()
				l.Log.Warn("could not look", "error", err)
			}
			idle = max(idle+1, 8)
		case found.Events > 0:
			idle = 0
		case found.Busy:
			idle = min(idle, 2)
		default:
			idle++
		}
	}
}

// every is the longest pause between two looks.
func (l *Loop) every() time.Duration {
	if !l.Bell.Up() {
		return min(deafPoll, l.Poll)
	}
	return l.Poll
}

func (l *Loop) once(ctx context.Context, nextTick *time.Time) (Found, error) {
	if now := time.Now(); !now.Before(*nextTick) {
		f, err := l.Tick(ctx)
		*nextTick = now.Add(l.Poll)
		if f.Next > 0 {
			*nextTick = time.Now().Add(min(l.Poll, f.Next))
		}
		return f, err
	}
	if l.bells.crowded(time.Now()) {
		return l.window(ctx)
	}
	return l.Look(ctx)
}

const (
	sqlWindow = "begin; set local idle_in_transaction_session_timeout = '1s'; select pg_try_advisory_xact_lock(1886219628, 2)"
	sqlShut   = "commit"
)

// window keeps emitters silent for a moment by holding their lock, without a
// transaction id and without a snapshot, and looks meanwhile and once after.
func (l *Loop) window(ctx context.Context) (Found, error) {
	conn, err := l.Pool.Acquire(ctx)
	if err != nil {
		return Found{}, err
	}
	defer conn.Release()
	res, err := conn.Conn().PgConn().Exec(ctx, sqlWindow).ReadAll()
	if err != nil {
		return Found{}, fmt.Errorf("hold the bell: %w", err)
	}
	mine := string(res[len(res)-1].Rows[0][0]) == "t"
	var sum Found
	for end := time.Now().Add(windowLen); time.Now().Before(end) && ctx.Err() == nil; {
		f, err := l.Look(ctx)
		if err != nil {
			return sum, err // the connection's state is unknown to us; release resets or closes it
		}
		sum.Events += f.Events
		pause(ctx, stride(f.Events))
	}
	shut := sqlShut
	if l.windows++; mine && sum.Events > 0 && l.windows%2 == 0 && l.Others != nil && l.Others() > 0 {
		shut = "select pg_notify('" + channel + "', '" + l.Bell.fromHost() + "'); " + sqlShut
	}
	if _, err := conn.Conn().PgConn().Exec(ctx, shut).ReadAll(); err != nil {
		return sum, fmt.Errorf("let go of the bell: %w", err)
	}
	f, err := l.Look(ctx)
	sum.Events += f.Events
	if sum.Events == 0 {
		l.bells = bells{} // quiet again: wait for the next bell
	}
	return sum, err
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
