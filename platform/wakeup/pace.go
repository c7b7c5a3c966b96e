package wakeup

import "time"

const (
	crowd      = 120                    // this many bells in a second are too many
	crowdAgain = 30                     // … soon after there was much to do
	soon       = 10 * time.Second       // … which is so long
	windowLen  = 20 * time.Millisecond  // how long a look at a crowd takes
	hushLen    = 200 * time.Millisecond // how long it keeps emitters silent
	bustle     = 24                     // this many events in the last ten windows are worth another: a crowd's
	deafPoll   = 100 * time.Millisecond // the look's interval while LISTEN is not heard
	firstRetry = time.Millisecond
	jobsFirst  = 5 * time.Millisecond   // who was cancelled is asked so long after a bell or a look
	jobsPause  = 100 * time.Millisecond // … and so long after it was asked
)

// after is how long to wait before looking again when the last idle looks found
// nothing: 1, 2, 4 … ms, at most poll.
func after(idle int, poll time.Duration) time.Duration {
	if idle > 20 {
		return poll
	}
	return min(firstRetry<<idle, poll)
}

// traffic is what the last windows found. Ten of them, so that emitters that wait for
// a slow disk for a moment are not taken for gone.
type traffic struct {
	found [10]int64
	next  int
}

// begin gives a first window credit: six events in it are enough for another.
func (t *traffic) begin() {
	for i := range t.found {
		t.found[i] = 2
	}
}

// more notes what a window found and reports whether there should be another.
func (t *traffic) more(found int64) bool {
	t.found[t.next] = found
	t.next = (t.next + 1) % len(t.found)
	var sum int64
	for _, n := range t.found {
		sum += n
	}
	return sum >= bustle
}

// stride is how long to wait between looks inside a window that has found so many
// events: short while they are few, longer where throughput is what counts.
func stride(found int64) time.Duration {
	switch {
	case found < 8:
		return 500 * time.Microsecond
	case found < 32:
		return 2 * time.Millisecond
	default:
		return 10 * time.Millisecond
	}
}

// bells remembers when the last bells were heard, and when events last came in such
// numbers that a window was worth it.
type bells struct {
	at     [crowd]time.Time
	next   int
	bustle time.Time
}

func (b *bells) heard(now time.Time, n int) {
	for range min(n, crowd) {
		b.at[b.next] = now
		b.next = (b.next + 1) % crowd
	}
}

// crowded reports whether as many bells as a crowd came within the last second.
func (b *bells) crowded(now time.Time) bool {
	most := crowd
	if !b.bustle.IsZero() && now.Sub(b.bustle) < soon {
		most = crowdAgain
	}
	oldest := b.at[(b.next+crowd-most)%crowd]
	return !oldest.IsZero() && now.Sub(oldest) < time.Second
}

// forget lets the next bell wake at once.
func (b *bells) forget() { b.at = [crowd]time.Time{} }
