package platform

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Poison says what becomes of an event whose attempts are spent.
type Poison string

// What becomes of poison.
const (
	Hold Poison = "hold" // the shard waits at the event until an operator resumes, parks or drops it
	Park Poison = "park" // the event and its key are set aside, the shard goes on
)

// Start says where a subscription that the database does not know yet begins.
type Start string

// Where a new subscription begins.
const (
	FromNow  Start = "now"  // with what is committed after it was first declared
	FromZero Start = "zero" // with the first event there is
)

// OrderBy says which events of a subscription are kept in order among each other.
type OrderBy string

// What events are kept in order by.
const (
	ByKey    OrderBy = "key"    // the event's key; its target if it has none
	ByTarget OrderBy = "target" // the event's target
)

// Subscription is a function with a durable cursor over the log (N32). It gets
// every committed event that matches, each once, events of one key in order.
type Subscription struct {
	// Name is stable and unique: lower-case words joined by dots, at most 100 bytes.
	Name string
	// Module owns the function; "" means the first word of Name. If a Module of that
	// name is registered, the handler runs as its role; one that is named here must be.
	Module string
	// Events are the types it listens to. A last segment * stands for the rest:
	// "connector.health.*"; "*" alone for all.
	Events []string
	// Owners must be complete, or the subscription does not run (N40).
	Owners Owners
	// Key is what is kept in order; "" means ByKey.
	Key OrderBy
	// Shards work side by side, each on its share of the keys; 0 means 1. The
	// database keeps the number; the code's value is only the first.
	Shards int
	// MaxAttempts bounds the tries of one event; 0 means 5. A host that dies with
	// an event counts as one.
	MaxAttempts int
	// OnPoison is what becomes of an event after its last attempt; "" means Hold.
	OnPoison Poison
	// From is where it begins when it is first declared; "" means FromNow.
	From Start
	// Replayable allows moving it back: its effects may be repeated.
	Replayable bool
	// Timeout bounds one transaction; 0 means 30 s.
	Timeout time.Duration
	// Batch is how many events share one transaction at the most; 0 means 500.
	Batch int

	// Handle is called for each event; what it writes through tx commits with the
	// cursor. What it emits and enqueues with ctx is of the event's trace. Exactly one of Handle and HandleBatch is set.
	Handle func(ctx context.Context, tx pgx.Tx, e Event) error
	// HandleBatch gets up to Batch events at once, in order; they may be of many traces, so
	// what it emits names its own. Return a *BatchError
	// to say which one failed.
	HandleBatch func(ctx context.Context, tx pgx.Tx, events []Event) error

	shown *Description // of a function of another kind that this is the working of
}

var (
	nameForm    = regexp.MustCompile(`^[a-z0-9_]+(\.[a-z0-9_]+)*$`)
	patternForm = regexp.MustCompile(`^(\*|[a-z0-9_]+(\.[a-z0-9_]+)*(\.\*)?)$`)
)

// describe fills in the zero values and says in one line what is wrong, if anything.
func (s Subscription) describe() (Function, error) {
	s.Module = cmp.Or(s.Module, strings.SplitN(s.Name, ".", 2)[0])
	s.Key = cmp.Or(s.Key, ByKey)
	s.Shards = cmp.Or(s.Shards, 1)
	s.MaxAttempts = cmp.Or(s.MaxAttempts, 5)
	s.OnPoison = cmp.Or(s.OnPoison, Hold)
	s.From = cmp.Or(s.From, FromNow)
	s.Timeout = cmp.Or(s.Timeout, 30*time.Second)
	s.Batch = cmp.Or(s.Batch, 500)
	var bad string
	switch {
	case !nameForm.MatchString(s.Name) || len(s.Name) > 100:
		return nil, fmt.Errorf("subscription %q: a name is lower-case words joined by dots, at most 100 bytes", s.Name)
	case !nameForm.MatchString(s.Module):
		bad = fmt.Sprintf("module %q is not lower-case words joined by dots", s.Module)
	case len(s.Events) == 0:
		bad = "it listens to nothing: name event types in Events"
	case (s.Handle == nil) == (s.HandleBatch == nil):
		bad = "set exactly one of Handle and HandleBatch"
	case s.Key != ByKey && s.Key != ByTarget:
		bad = fmt.Sprintf("Key %q is neither key nor target", s.Key)
	case s.Shards < 1 || s.Shards > 1024:
		bad = fmt.Sprintf("Shards is %d; 1 to 1024", s.Shards)
	case s.MaxAttempts < 1:
		bad = fmt.Sprintf("MaxAttempts is %d; at least 1", s.MaxAttempts)
	case s.OnPoison != Hold && s.OnPoison != Park:
		bad = fmt.Sprintf("OnPoison %q is neither hold nor park", s.OnPoison)
	case s.From != FromNow && s.From != FromZero:
		bad = fmt.Sprintf("From %q is neither now nor zero", s.From)
	case s.Timeout < 0:
		bad = fmt.Sprintf("Timeout is %v; it cannot be negative", s.Timeout)
	case s.Batch < 1 || s.Batch > 10_000:
		bad = fmt.Sprintf("Batch is %d; 1 to 10000", s.Batch)
	}
	for _, p := range s.Events {
		if bad == "" && (!patternForm.MatchString(p) || len(p) > 128) {
			bad = fmt.Sprintf("event pattern %q: lower-case words joined by dots, * only as the last", p)
		}
	}
	if bad != "" {
		return nil, fmt.Errorf("subscription %s: %s", s.Name, bad)
	}
	return s, nil
}

// Describe answers what the registry and mill.functions show.
func (s Subscription) Describe() Description {
	if s.shown != nil {
		return *s.shown
	}
	return Description{Name: s.Name, Kind: "subscription", Module: s.Module, Listens: s.Events}
}

// Matches reports whether an event type is one the subscription listens to.
func (s Subscription) Matches(eventType string) bool {
	for _, p := range s.Events {
		prefix, rest := strings.CutSuffix(p, "*")
		if p == eventType || rest && strings.HasPrefix(eventType, prefix) && len(eventType) > len(prefix) {
			return true
		}
	}
	return false
}
