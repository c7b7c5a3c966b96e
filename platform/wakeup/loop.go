package wakeup

import (
	"context"
	"log/slog"
	"time"
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
	// Look is cheap: what is new. hush > 0 also keeps emitters from ringing for so long.
	Look func(ctx context.Context, hush time.Duration) (Found, error)
	// Answer is a look because the bell rang, so that there is something. nil: Look.
	Answer func(ctx context.Context) (Found, error)
	Tick   func(ctx context.Context) (Found, error) // everything a poll does
	Arm    func(ctx context.Context) error          // ends a hush
	Poll   time.Duration                            // 0 means 1 s
	Bell   *Bell
	// Others says how many other hosts live; they are rung while emitters are silent.
	Others func() int
	Log    *slog.Logger

	bells   bells
	traffic traffic
	busy    bool      // the last windows found enough to go on without bells
	wary    bool      // somebody may have emitted in silence and not committed yet
	lookBy  time.Time // bells of jobs ask for a look by then; zero: none does
	windows int
}

// Run looks until ctx ends. An error of the database is logged, at most once a
// second, and never ends it.
func (l *Loop) Run(ctx context.Context) error {
	if l.Poll == 0 {
		l.Poll = time.Second
	}
	idle := 0
	l.wary = true
	var lastWord time.Time
	nextTick := time.Now()
	for {
		wait := min(after(idle, l.every()), time.Until(nextTick))
		if l.busy { // the next window, before the silence runs out
			wait = min(firstRetry, wait)
		}
		if !l.lookBy.IsZero() {
			wait = min(wait, time.Until(l.lookBy))
		}
		rung := false
		select {
		case <-ctx.Done():
			return nil
		case n := <-l.Bell.Heard:
			rung = true
			l.bells.heard(time.Now(), n)
		case n := <-l.Bell.HeardJobs:
			if l.later(n) {
				continue
			}
		case <-time.After(wait):
		}
		l.lookBy = time.Time{}
		found, err := l.once(ctx, rung, &nextTick)
		switch {
		case err != nil && ctx.Err() == nil:
			if time.Since(lastWord) > time.Second {
				lastWord = time.Now()
				l.Log.Warn("could not look", "error", err)
			}
			idle = max(idle+1, 8)
		case found.Events > 0 && (l.wary || !l.Bell.Up()):
			idle = 0
		case found.Events == 0 && rung:
			idle = 1
		case found.Busy:
			idle = min(idle, 2)
		case after(idle, l.every()) < l.every():
			idle++
		default:
			l.wary = false
		}
	}
}

// later reports whether the look for bells of jobs may wait for a moment: the jobs have
// been asked for, and a look now would only be in their way.
func (l *Loop) later(n int) bool {
	now := time.Now()
	l.bells.heard(now, n)
	if l.busy || l.bells.crowded(now) || !l.lookBy.IsZero() && !now.Before(l.lookBy) {
		return false
	}
	if l.lookBy.IsZero() {
		l.lookBy = now.Add(jobsFirst)
	}
	return true
}

// every is the longest pause between two looks.
func (l *Loop) every() time.Duration {
	if !l.Bell.Up() {
		return min(deafPoll, l.Poll)
	}
	return l.Poll
}

func (l *Loop) once(ctx context.Context, rung bool, nextTick *time.Time) (Found, error) {
	if now := time.Now(); !now.Before(*nextTick) {
		f, err := l.Tick(ctx)
		*nextTick = now.Add(l.Poll)
		if f.Next > 0 {
			*nextTick = time.Now().Add(min(l.Poll, f.Next))
		}
		return f, err
	}
	if l.busy || l.bells.crowded(time.Now()) {
		if !l.busy {
			l.traffic.begin()
		}
		f, err := l.window(ctx)
		if l.busy = l.traffic.more(f.Events); l.busy {
			l.bells.bustle = time.Now()
		}
		if err == nil && !l.busy && !l.bells.crowded(time.Now()) {
			err = l.rest(ctx, &f)
		}
		return f, err
	}
	if rung && l.Answer != nil {
		return l.Answer(ctx)
	}
	return l.Look(ctx, 0)
}

// window keeps emitters silent for a moment and looks meanwhile. The silence outlasts
// the window, so that a busy host goes on without letting go in between.
func (l *Loop) window(ctx context.Context) (Found, error) {
	l.wary = true
	sum, err := l.Look(ctx, hushLen)
	for end := time.Now().Add(windowLen); err == nil && time.Now().Before(end) && ctx.Err() == nil; {
		pause(ctx, stride(sum.Events))
		var f Found
		f, err = l.Look(ctx, 0)
		sum.Events += f.Events
	}
	if err != nil {
		return sum, err
	}
	if sum.Events == 0 {
		l.bells.forget()
	}
	if l.windows++; l.windows%2 == 0 && sum.Events > 0 && l.Others != nil && l.Others() > 0 {
		err = l.Bell.Ring(ctx)
	}
	return sum, err
}

// rest lets emitters ring again, and looks for what was silent until then.
func (l *Loop) rest(ctx context.Context, sum *Found) error {
	if err := l.Arm(ctx); err != nil {
		return err
	}
	f, err := l.Look(ctx, 0)
	sum.Events += f.Events
	return err
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
