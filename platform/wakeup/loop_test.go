package wakeup

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// days is a loop in a bubble of synctest: its looks and ticks answer what a test
// says, and are written down with the time they happened.
type days struct {
	Loop
	began time.Time

	mu    sync.Mutex
	looks []time.Duration
	hush  []time.Duration // of looks that kept emitters silent
	ticks []time.Duration
	arms  []time.Duration
	found func(look int) (Found, error) // nil: nothing found
	next  time.Duration
	said  []time.Duration // log lines
}

// run begins a loop with a bell that is up, or not, and returns when ctx ends.
func run(t *testing.T, up bool, d *days) (ring func(), stop func()) {
	d.began = time.Now()
	d.Bell = NewBell(nil, nil, "me", nil)
	d.Bell.up.Store(up)
	d.Log = slog.New(lines{d})
	at := func(list *[]time.Duration) { *list = append(*list, time.Since(d.began)) }
	d.Look = func(_ context.Context, hush time.Duration) (Found, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		at(&d.looks)
		if hush > 0 {
			at(&d.hush)
		}
		if d.found != nil {
			return d.found(len(d.looks))
		}
		return Found{}, nil
	}
	d.Tick = func(context.Context) (Found, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		at(&d.ticks)
		return Found{Next: d.next}, nil
	}
	d.Arm = func(context.Context) error {
		d.mu.Lock()
		defer d.mu.Unlock()
		at(&d.arms)
		return nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	return func() { rung(d.Bell.Heard) }, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
	}
}

// lines notes when something was logged.
type lines struct{ d *days }

func (l lines) Enabled(context.Context, slog.Level) bool { return true }
func (l lines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l lines) WithGroup(string) slog.Handler            { return l }
func (l lines) Handle(_ context.Context, r slog.Record) error {
	if !strings.Contains(r.Message, "could not look") {
		return errors.New("unexpected line")
	}
	l.d.said = append(l.d.said, time.Since(l.d.began))
	return nil
}

// N50: with nothing to find, a host looks in growing steps and then only polls.
func TestLoopFallsAsleepInSteps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &days{Loop: Loop{Poll: time.Second}}
		ring, stop := run(t, true, d)
		time.Sleep(10*time.Second + 300*time.Millisecond)
		synctest.Wait()
		if want := 11; len(d.ticks) != want {
			t.Errorf("%d ticks in ten seconds, want %d: %v", len(d.ticks), want, d.ticks)
		}
		asleep := len(d.looks)
		if last := d.looks[asleep-1]; last > 2*time.Second {
			t.Errorf("a look at %v; by then the poll alone should look", last)
		}
		woken := time.Since(d.began)
		ring()
		time.Sleep(40 * time.Millisecond)
		synctest.Wait()
		var after []time.Duration
		for _, at := range d.looks[asleep:] {
			after = append(after, (at - woken).Round(time.Millisecond))
		}
		if want := []time.Duration{0, 2, 6, 14, 30}; len(after) != len(want) || after[0] != 0 {
			t.Errorf("after the bell it looked at %v, want one at once and then at about %v ms", after, want)
		}
		stop()
	})
}

// What was found promises more: the steps begin anew.
func TestLoopStaysAwakeWhileItFinds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &days{Loop: Loop{Poll: time.Second}, found: func(int) (Found, error) { return Found{Events: 1}, nil }}
		_, stop := run(t, true, d)
		time.Sleep(time.Second - 1)
		synctest.Wait()
		stop()
		if n := len(d.looks); n < 900 {
			t.Errorf("%d looks in a second, want one each millisecond", n)
		}
	})
}

// While emitters may ring each rings for itself: a bell that was worth it is followed
// by no other look, and the next one is heard at once.
func TestLoopSleepsOnAfterABellThatWasWorthIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &days{Loop: Loop{Poll: time.Second}}
		ring, stop := run(t, true, d)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		before := len(d.looks)
		d.mu.Lock()
		d.found = func(int) (Found, error) { return Found{Events: 1}, nil }
		d.mu.Unlock()
		for range 20 {
			time.Sleep(20 * time.Millisecond)
			ring()
			synctest.Wait()
		}
		stop()
		if n := len(d.looks) - before; n != 20 {
			t.Errorf("%d looks for 20 bells", n)
		}
	})
}

// Another host is at it: look again within a few milliseconds.
func TestLoopLooksAgainSoonWhenAnotherIsAtIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &days{Loop: Loop{Poll: time.Second}, found: func(int) (Found, error) { return Found{Busy: true}, nil }}
		_, stop := run(t, true, d)
		time.Sleep(time.Second - 1)
		synctest.Wait()
		stop()
		if n := len(d.looks); n < 200 || n > 600 {
			t.Errorf("%d looks in a second, want one each 2 to 4 ms", n)
		}
	})
}

// N26: while LISTEN is not heard the poll is ten times a second.
func TestLoopPollsFasterWhileDeaf(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &days{Loop: Loop{Poll: time.Second}}
		_, stop := run(t, false, d)
		time.Sleep(time.Minute)
		synctest.Wait()
		stop()
		last := time.Duration(0)
		for _, at := range d.looks {
			if at-last > 2*deafPoll {
				t.Fatalf("no look between %v and %v", last, at)
			}
			last = at
		}
		if n := len(d.looks); n < 500 || n > 700 {
			t.Errorf("%d looks in a minute", n)
		}
	})
}

// F83: a database that is away is asked in growing steps, and the log has at most a
// line a second of it.
func TestLoopOutlivesTheDatabase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		away := true
		d := &days{Loop: Loop{Poll: time.Second}}
		d.found = func(int) (Found, error) {
			if away {
				return Found{}, errors.New("away")
			}
			return Found{}, nil
		}
		_, stop := run(t, false, d)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(d.looks); n > 700 {
			t.Errorf("asked %d times in a minute", n)
		}
		if n := len(d.said); n < 20 || n > 61 {
			t.Errorf("%d log lines in a minute", n)
		}
		d.mu.Lock()
		away = false
		looked := len(d.looks)
		d.mu.Unlock()
		time.Sleep(time.Second)
		synctest.Wait()
		if len(d.looks) == looked {
			t.Error("it does not look any more")
		}
		stop()
	})
}

// What falls due before the next poll is not missed by it.
func TestLoopTicksWhenSomethingFallsDue(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		next time.Duration
		want int // ticks in ten seconds
	}{
		{"nothing", 0, 11},
		{"in a quarter of a second", 250 * time.Millisecond, 41},
		{"later than the next poll", time.Hour, 11},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := &days{Loop: Loop{Poll: time.Second}, next: tt.next}
			_, stop := run(t, true, d)
			time.Sleep(10*time.Second + time.Millisecond)
			synctest.Wait()
			stop()
			if n := len(d.ticks); n != tt.want {
				t.Errorf("%s: %d ticks, want %d", tt.name, n, tt.want)
			}
		})
	}
}

// F81: when bells come often the host keeps emitters silent and looks by itself; once
// there is nothing it lets them ring again and then looks once more, for who was
// silent meanwhile.
func TestLoopHushesACrowd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		busy := true
		d := &days{Loop: Loop{Poll: time.Hour}}
		d.found = func(int) (Found, error) {
			if busy {
				return Found{Events: 1}, nil
			}
			return Found{}, nil
		}
		ring, stop := run(t, true, d)
		for range crowd {
			ring()
			time.Sleep(5 * time.Millisecond)
			synctest.Wait()
		}
		time.Sleep(300 * time.Millisecond)
		synctest.Wait()
		d.mu.Lock()
		hushed := slices.Clone(d.hush)
		busy = false
		d.mu.Unlock()
		if len(hushed) < 10 {
			t.Fatalf("hushed %d times in 300 ms", len(hushed))
		}
		for i := 1; i < len(hushed); i++ {
			if gap := hushed[i] - hushed[i-1]; gap >= hushLen/2 {
				t.Errorf("%v between two windows: a hush of %v may run out", gap, hushLen)
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		stop()
		if len(d.arms) != 1 {
			t.Fatalf("armed %d times, want once", len(d.arms))
		}
		if d.hush[len(d.hush)-1] > d.arms[0] {
			t.Error("hushed after it was armed")
		}
		if i := slices.IndexFunc(d.looks, func(at time.Duration) bool { return at >= d.arms[0] }); i < 0 || d.looks[i]-d.arms[0] > time.Millisecond {
			t.Error("no look right after it was armed")
		}
	})
}

// A crowd of jobs that is over: as long as its emitters are silent somebody looks, and then
// they may ring again.
func TestACrowdOfJobsIsNotLeftInSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &days{}
		d.found = func(look int) (Found, error) { // some in each window, and fewer than a crowd
			if look%25 == 0 {
				return Found{Jobs: 1}, nil
			}
			return Found{}, nil
		}
		_, stop := run(t, true, d)
		time.Sleep(5*time.Second + 100*time.Millisecond) // it has come to rest
		synctest.Wait()
		d.mu.Lock()
		hushed, arms := len(d.hush), len(d.arms)
		d.mu.Unlock()
		d.Bell.HeardJobs <- crowd / 2
		time.Sleep(13 * time.Millisecond) // the first are a second old between two windows
		d.Bell.HeardJobs <- crowd / 2
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		stop()
		if len(d.hush) == hushed {
			t.Fatal("a crowd of jobs was not met by a window")
		}
		for i := hushed + 1; i < len(d.hush); i++ {
			if gap := d.hush[i] - d.hush[i-1]; gap >= hushLen/2 {
				t.Errorf("%v between two windows: a hush of %v may run out", gap, hushLen)
			}
		}
		if len(d.arms) != arms+1 || d.arms[arms]-d.hush[len(d.hush)-1] > windowLen+10*time.Millisecond {
			t.Errorf("armed at %v, hushed last at %v", d.arms[arms:], d.hush[len(d.hush)-1])
		}
		var steps []time.Duration // after the bell was armed
		for _, at := range d.looks {
			if len(d.arms) > arms && at > d.arms[arms] {
				steps = append(steps, (at - d.arms[arms]).Round(time.Millisecond))
			}
		}
		if len(steps) < 4 || steps[3] > 20*time.Millisecond {
			t.Errorf("looks for who was silent and had not committed: %v after the bell was armed, want growing steps", steps)
		}
	})
}

// A bell of jobs does not look, since the jobs have been asked for; who was cancelled is
// asked a moment later, and again for bells after that, not for each of them. A crowd of
// them is a crowd.
func TestBellsOfJobsLookForNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &days{}
		var asked []time.Time
		d.Jobs = func(context.Context) error { asked = append(asked, time.Now()); return nil }
		_, stop := run(t, true, d)
		time.Sleep(5*time.Second + 100*time.Millisecond) // it has come to rest
		synctest.Wait()
		d.mu.Lock()
		before, hushed := len(d.looks), len(d.hush)
		d.mu.Unlock()
		since := time.Now()
		polls := len(asked)
		for range 8 {
			d.Bell.HeardJobs <- 1
			time.Sleep(2 * time.Millisecond)
		}
		time.Sleep(2 * jobsPause)
		synctest.Wait()
		d.mu.Lock()
		after := len(d.looks)
		d.mu.Unlock()
		if asked = asked[polls:]; len(asked) != 2 || asked[0].Sub(since) != jobsFirst || asked[1].Sub(asked[0]) != jobsPause {
			t.Errorf("after bells each 2 ms asked at %v; want after %v, and once more after %v", asked, jobsFirst, jobsPause)
		}
		if after != before {
			t.Errorf("%d looks because of jobs", after-before)
		}
		d.Bell.HeardJobs <- crowd
		synctest.Wait()
		if len(d.hush) == hushed {
			t.Error("a crowd of jobs was not met by a window")
		}
		stop()
	})
}
