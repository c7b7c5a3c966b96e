package subscription_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/subscription"
)

// N36: exponential 1 s to 5 min, ± 10 %.
func TestWait(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		attempt int
		spread  float64
		want    time.Duration
	}{
		{"the first failure waits a second", 1, 0, time.Second},
		{"the second two", 2, 0, 2 * time.Second},
		{"it doubles", 5, 0, 16 * time.Second},
		{"the wait is capped", 10, 0, 5 * time.Minute},
		{"whatever the number", 1 << 40, 0, 5 * time.Minute},
		{"zero attempts wait as one", 0, 0, time.Second},
		{"the spread takes a tenth off", 1, -1, 900 * time.Millisecond},
		{"or adds one, to the capped wait as well", 99, 1, 330 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := subscription.Wait(tt.attempt, tt.spread); got != tt.want {
				t.Errorf("Wait(%d, %v) = %v; want %v", tt.attempt, tt.spread, got, tt.want)
			}
		})
	}
}

func TestWaitGrowsAndStaysWithinATenth(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		attempt := rapid.IntRange(1, 200).Draw(t, "attempt")
		spread := rapid.Float64Range(-1, 1).Draw(t, "spread")
		middle, got := subscription.Wait(attempt, 0), subscription.Wait(attempt, spread)
		if got < middle*9/10-1 || got > middle*11/10+1 {
			t.Fatalf("Wait(%d, %v) = %v; want within a tenth of %v", attempt, spread, got, middle)
		}
		if next := subscription.Wait(attempt+1, 0); next < middle || next > 2*middle || next > 5*time.Minute {
			t.Fatalf("Wait(%d) = %v after %v", attempt+1, next, middle)
		}
	})
}

func TestDecide(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name       string
		attempts   int
		onPoison   platform.Poison
		reason     platform.Reason
		final      bool
		unparkable bool
		want       subscription.Verdict
		wait       time.Duration
	}{
		{"a failure is tried again", 1, platform.Hold, "handler_error", false, false, subscription.Retry, time.Second},
		{"so is the last but one", 4, platform.Park, "host_lost", false, false, subscription.Retry, 8 * time.Second},
		{"spent attempts hold the shard, which looks again each five minutes", 5, platform.Hold, "handler_error", false, false, subscription.Hold, 5 * time.Minute},
		{"or park the event", 5, platform.Park, "handler_error", false, false, subscription.Park, 0},
		{"no room to park holds", 5, platform.Park, "handler_error", false, true, subscription.Hold, 5 * time.Minute},
		{"a final failure is not tried again", 1, platform.Hold, "stock.gone", true, false, subscription.Hold, 0},
		{"a final failure is parked at once", 1, platform.Park, "bad_data", true, false, subscription.Park, 0},
		{"what killed hosts is not tried again unattended", 5, platform.Hold, "host_lost", false, false, subscription.Hold, 0},
		{"what killed hosts is parked", 5, platform.Park, "host_lost", false, false, subscription.Park, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, wait := subscription.Decide(tt.attempts, 5, tt.onPoison, tt.reason, tt.final, !tt.unparkable, 0)
			if got != tt.want || wait != tt.wait {
				t.Errorf("Decide(%d of 5, %s, %s, final %v, parkable %v) = %v, %v; want %v, %v",
					tt.attempts, tt.onPoison, tt.reason, tt.final, !tt.unparkable, got, wait, tt.want, tt.wait)
			}
		})
	}
}

// N36: never auto-skip by default. No event leaves the shard's way unless it may be
// parked, and no event is tried more often than it may be.
func TestDecideNeverSkipsAndNeverRunsOn(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 20).Draw(t, "max attempts")
		attempts := rapid.IntRange(1, 30).Draw(t, "attempts")
		onPoison := rapid.SampledFrom([]platform.Poison{platform.Hold, platform.Park}).Draw(t, "on poison")
		reason := rapid.SampledFrom([]platform.Reason{"handler_error", "host_lost", "panic", "a.b"}).Draw(t, "reason")
		final, parkable := rapid.Bool().Draw(t, "final"), rapid.Bool().Draw(t, "parkable")
		spread := rapid.Float64Range(-1, 1).Draw(t, "spread")
		verdict, wait := subscription.Decide(attempts, most, onPoison, reason, final, parkable, spread)
		if (verdict == subscription.Retry) != (attempts < most && !final) {
			t.Fatalf("verdict %v", verdict)
		}
		if (verdict == subscription.Retry) && wait <= 0 {
			t.Fatalf("a retry waits %v", wait)
		}
		if verdict == subscription.Park && (onPoison != platform.Park || !parkable) {
			t.Fatal("parked what may not be")
		}
	})
}
