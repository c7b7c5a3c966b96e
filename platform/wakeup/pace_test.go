package wakeup

import (
	"testing"
	"time"
)

func TestAfter(t *testing.T) {
	t.Parallel()
	const poll = time.Second
	for _, tt := range []struct {
		name string
		idle int
		poll time.Duration
		want time.Duration
	}{
		{"right after something was found", 0, poll, time.Millisecond},
		{"one idle look", 1, poll, 2 * time.Millisecond},
		{"doubled each time", 9, poll, 512 * time.Millisecond},
		{"at most the poll", 10, poll, poll},
		{"and for ever", 1 << 40, poll, poll},
		{"a poll shorter than a step", 5, 10 * time.Millisecond, 10 * time.Millisecond},
		{"a long poll", 20, time.Hour, 1 << 20 * time.Millisecond},
		{"a long poll, idle for long", 21, time.Hour, time.Hour},
	} {
		if got := after(tt.idle, tt.poll); got != tt.want {
			t.Errorf("%s: after(%d, %v) = %v, want %v", tt.name, tt.idle, tt.poll, got, tt.want)
		}
	}
}

func TestStrideGrowsWithWhatIsFound(t *testing.T) {
	t.Parallel()
	last := time.Duration(0)
	for _, found := range []int64{0, 7, 8, 31, 32, 1_000_000} {
		got := stride(found)
		if got < last || got <= 0 || got >= windowLen {
			t.Errorf("stride(%d) = %v after %v; want growing and shorter than a window of %v", found, got, last, windowLen)
		}
		last = got
	}
	if stride(0) >= time.Millisecond {
		t.Errorf("stride(0) = %v: few events want to be found at once", stride(0))
	}
}

func TestBellsAreACrowdWhenManyComeInASecond(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		bells int
		apart time.Duration
		later time.Duration // asked so long after the last
		busy  time.Duration // so long before them there was much to do; 0: never
		want  bool
	}{
		{"none", 0, 0, 0, 0, false},
		{"one less than a crowd at once", crowd - 1, 0, 0, 0, false},
		{"a crowd at once", crowd, 0, 0, 0, true},
		{"a crowd within a second", crowd, time.Second/crowd - time.Millisecond, 0, 0, true},
		{"a crowd in over a second", crowd, time.Second/(crowd-1) + time.Millisecond, 0, 0, false},
		{"twice a crowd, the last half at once", 2 * crowd, 0, 0, 0, true},
		{"a crowd a second ago", crowd, 0, time.Second, 0, false},
		{"a crowd almost a second ago", crowd, 0, time.Second - 1, 0, true},
		{"fewer after a busy time", crowdAgain, 0, 0, time.Second, true},
		{"one less than these", crowdAgain - 1, 0, 0, time.Second, false},
		{"as few long after it", crowdAgain, 0, 0, soon, false},
	} {
		var b bells
		now := time.Unix(1_700_000_000, 0)
		if tt.busy > 0 {
			b.bustle = now.Add(-tt.busy)
		}
		for range tt.bells {
			now = now.Add(tt.apart)
			b.heard(now, 1)
		}
		if got := b.crowded(now.Add(tt.later)); got != tt.want {
			t.Errorf("%s: crowded = %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestTrafficOutlivesAMomentsStall(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		found []int64
		want  bool // another window after the last
	}{
		{"a first window as of a crowd", []int64{6}, true},
		{"a first window of fewer", []int64{5}, false},
		{"much, and then nothing for a moment", []int64{20, 20, 0, 0, 0, 0}, true},
		{"much, and then nothing for ten windows", []int64{20, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, false},
		{"a crowd's share a window", []int64{3, 2, 2, 3, 2, 2, 3, 2, 2, 3, 2, 3}, true},
		{"two a window", []int64{2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2}, false},
	} {
		var w traffic
		w.begin()
		got := false
		for _, n := range tt.found {
			got = w.more(n)
		}
		if got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
