package subscription

import (
	"time"

	"github.com/pgmill/pgmill/platform"
)

// Verdict is what becomes of an event that failed.
type Verdict int

// The verdicts.
const (
	Retry Verdict = iota // again after Wait
	Hold                 // the shard stops here; after Wait it looks again, 0: only an operator moves it on
	Park                 // the event and its key are set aside
)

const (
	retryBase = time.Second
	retryMax  = 5 * time.Minute
)

// Wait returns how long an event rests after its attempt-th failure: 1 s, doubled
// each time up to 5 min; spread in [-1,1] shifts it by up to a tenth (N36).
func Wait(attempt int, spread float64) time.Duration {
	wait := retryBase
	for i := 1; i < attempt && wait < retryMax; i++ {
		wait *= 2
	}
	wait = min(wait, retryMax)
	return wait + time.Duration(spread*float64(wait)/10)
}

// Decide says what becomes of an event after its attempts-th failure. final means
// that the handler asked for no retry. parkable is false when the shard has as many
// parked keys as it may.
func Decide(attempts, maxAttempts int, onPoison platform.Poison, reason platform.Reason, final, parkable bool, spread float64) (Verdict, time.Duration) {
	switch {
	case attempts < maxAttempts && !final:
		return Retry, Wait(attempts, spread)
	case onPoison == platform.Park && parkable:
		return Park, 0
	case reason == platform.ReasonHostLost || final:
		return Hold, 0
	default:
		return Hold, retryMax
	}
}
