package wakeup

import (
	"context"
	"log/slog"
	"time"
)

// Found is what one look found.
type Found struct {
	Events int64         // fresh events
	Jobs   int64         // claimed since the last look, by whichever bell or look
	Busy   bool          // another host was at it: look again soon
	Next   time.Duration // when something falls due before the next poll; 0: nothing does
}

func (f *Found) add(g Found) { f.Events, f.Jobs = f.Events+g.Events, f.Jobs+g.Jobs }

func (f Found) all() int64 { return f.Events + f.Jobs }

// Loop is the one place of a host that looks: when the bell rings, in growing steps
// after it, and at each poll. Fill in the fields.
type Loop struct {
	// Look is cheap: what is new. hush > 0 also keeps emitters from ringing for so long.
	Look func(ctx context.Context, hush time.Duration) (Found, error)
	// Answer is a look because the bell rang, so that there is something. nil: Look.
	Answer func(ctx context.Context) (Found, error)
	// Jobs is asked a moment after each bell, look and poll: who was cancelled. Between two
	// such questions is a pause; one that falls into it comes at its end. nil: nothing.
	Jobs func(ctx context.Context) error
	Tick func(ctx context.Context) (Found, error) // everything a poll does
	Arm  func(ctx context.Context) error          // ends a hush
	Poll time.Duration                            // 0 means 1 s
	Bell *Bell
	// Others says how many other hosts live; they are rung while emitters are silent.
	Others func() int
	Log    *slog.Logger

	bells   bells
	traffic traffic
	busy    bool      // the last windows found enough to go on without bells
	hushed  bool      // emitters are silent
	wary    bool      // somebody may have emitted in silence and not committed yet
	jobsBy  time.Time // Jobs is asked then; zero: no need
	asked   time.Time // when Jobs was asked last
	windows int
}

// Run looks until ctx ends. An error of the database is logged, at most once a
// second, and never ends it.
func (l *Loop) Run(ctx context.Context) error {
	if l.Poll == 0 {
		l.Poll = time.Second
	}
	idle, up := 0, false
	var lastWord time.Time
	say := func(err error) {
		if time.Since(lastWord) > time.Second {
			lastWord = time.Now()
			l.Log.Warn("could not look", "error", err)
		}
	}
	nextTick := time.Now()
	nextLook := nextTick
	l.wary = true
	for {
		if up != l.Bell.Up() {
			up = !up
			l.wary = true
			nextLook = earlier(nextLook, time.Now().Add(l.every()))
			if up { // the poll arms the bell
				nextTick = time.Now()
			}
		}
		why := l.wait(ctx, earlier(nextLook, nextTick))
		if ctx.Err() != nil {
			return nil
		}
		switch why {
		case turned:
			continue
		case jobs:
			l.jobsBy, l.asked = time.Time{}, time.Now()
			if err := l.Jobs(ctx); err != nil && ctx.Err() == nil {
				say(err)
			}
			continue
		}
		windows := l.windows
		found, err := l.once(ctx, why == bell, &nextTick)
		l.askJobs()
		switch {
		case err != nil && ctx.Err() == nil:
			say(err)
			idle = max(idle+1, 8)
		case l.windows > windows: // who was silent in it may commit later
			idle = 0
		case found.Events > 0 && l.wary && why == timer, found.all() > 0 && !l.Bell.Up(): // where some were silent there may be more
			idle = 0
		case found.Events == 0 && why == bell:
			idle = 1
		case found.Busy:
			idle = min(idle, 2)
		case after(idle, l.every()) < l.every():
			idle++
		default:
			l.wary = false
		}
		nextLook = time.Now().Add(after(idle, l.every()))
		if l.hushed && err == nil { // the next window, before the silence runs out
			nextLook = earlier(nextLook, time.Now().Add(firstRetry))
		}
	}
}

// reason is why a wait is over.
type reason int

const (
	timer reason = iota
	bell
	crowded // jobs come in such numbers that a look is for them, too
	jobs    // Jobs is to be asked
	turned  // LISTEN begins or ceases to be heard
)

// wait is over at next, or when something is asked for before.
func (l *Loop) wait(ctx context.Context, next time.Time) reason {
	for {
		by := next
		if !l.jobsBy.IsZero() {
			by = earlier(by, l.jobsBy)
		}
		select {
		case <-ctx.Done():
			return timer
		case n := <-l.Bell.Heard:
			l.bells.heard(time.Now(), n)
			return bell
		case <-l.Bell.turned:
			return turned
		case n := <-l.Bell.HeardJobs:
			now := time.Now()
			l.bells.heard(now, n)
			if l.busy || l.bells.crowded(now) {
				return crowded
			}
			l.askJobs()
		case <-time.After(time.Until(by)):
			if by.Before(next) {
				return jobs
			}
			return timer
		}
	}
}

func (l *Loop) askJobs() {
	if l.Jobs != nil && l.jobsBy.IsZero() {
		l.jobsBy = time.Now().Add(jobsFirst)
		if next := l.asked.Add(jobsPause); l.jobsBy.Before(next) {
			l.jobsBy = next
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
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
	if l.busy || l.hushed || l.bells.crowded(time.Now()) {
		if !l.busy {
			l.traffic.begin()
		}
		f, err := l.window(ctx)
		if l.busy = l.traffic.more(f.all()); l.busy {
			l.bells.bustle = time.Now()
		}
		if l.hushed = l.busy || l.bells.crowded(time.Now()); err == nil && !l.hushed {
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
		pause(ctx, stride(sum.all()))
		var f Found
		f, err = l.Look(ctx, 0)
		sum.add(f)
	}
	if err != nil {
		return sum, err
	}
	if sum.all() == 0 {
		l.bells.forget()
	}
	if l.windows++; l.windows%2 == 0 && sum.all() > 0 && l.Others != nil && l.Others() > 0 {
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
	sum.add(f)
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
