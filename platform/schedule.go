package platform

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Missed says what becomes of fire times that passed while no host was there for
// them. One that is at most half a minute late was not missed: it fires.
type Missed string

// What becomes of missed fire times.
const (
	SkipMissed   Missed = "skip"   // they are left out
	LatestMissed Missed = "latest" // the newest one fires, if nothing newer does
	AllMissed    Missed = "all"    // they fire, oldest first, at most the newest MaxMissed
)

// Overlap says what becomes of a fire time that comes while the tick before it is
// not done.
type Overlap string

// What becomes of ticks that overlap.
const (
	QueueOverlap Overlap = "queue" // it waits its turn
	SkipOverlap  Overlap = "skip"  // it is left out
	AllowOverlap Overlap = "allow" // it runs beside the others, up to Together
)

// TickPrefix comes before a schedule's name in the type of its events. Only
// schedules emit events of such types.
const TickPrefix = "schedule."

// Schedule is a function that runs at the times of a cron line: each fire time is
// one event of type schedule.<name>, emitted once whichever hosts live, and handled
// like a subscription's events: exactly once in Postgres, retried, parked.
type Schedule struct {
	// Name is stable and unique: lower-case words joined by dots, at most 100 bytes.
	Name string
	// Module owns the function; "" means the first word of Name. If a Module of that
	// name is registered, the handler runs as its role; one that is named here must be.
	Module string
	// Cron is five fields, a name such as @daily, or "@every 90s" (whole seconds, at
	// least one; from when it is first declared). Where the clock is set forward, a
	// local time that does not exist fires at the first instant after the gap; where
	// it is set back, a time that comes twice fires the first time. Only a line that
	// names every hour fires at each real one of them.
	Cron string
	// Zone is a name of the IANA database; "" means UTC.
	Zone string
	// Owners must be complete, or the schedule does not run (N40).
	Owners Owners
	// Missed is what becomes of fire times that no host was there for; "" means
	// LatestMissed. MaxMissed bounds AllMissed: 0 means 100, at most 1000.
	Missed    Missed
	MaxMissed int
	// Overlap is for a fire time that comes while the tick before is not done; ""
	// means QueueOverlap. Together bounds AllowOverlap: 0 means 4, at most 64. The
	// database keeps Together; the code's value is only the first.
	Overlap  Overlap
	Together int
	// MaxAttempts bounds the tries of one tick; 0 means 5.
	MaxAttempts int
	// OnPoison is what becomes of a tick after its last attempt; "" means Park, so
	// that later ticks go on.
	OnPoison Poison
	// Timeout bounds one transaction; 0 means 30 s.
	Timeout time.Duration

	// Handle is called for each tick; what it writes through tx commits with the
	// tick, or not at all.
	Handle func(ctx context.Context, tx pgx.Tx, t Tick) error

	cadence Cadence
	shown   *Description // of a function of another kind that this is the working of
}

// Tick is one fire time of a schedule.
type Tick struct {
	Name   string
	At     time.Time // the fire time, in the schedule's zone; it may be past
	Missed int       // fire times before it that were missed and left out; counted up to 100, or MaxMissed
	Manual bool      // an operator triggered it: At is when
	Event  Event     // the tick in the log
}

// tickData is what the event of a tick points to.
type tickData struct {
	At     time.Time `json:"at"`
	Missed int       `json:"missed"`
	Manual bool      `json:"manual"`
}

// describe fills in the zero values and says in one line what is wrong, if anything.
func (s Schedule) describe() (Function, error) {
	s.Module = cmp.Or(s.Module, strings.SplitN(s.Name, ".", 2)[0])
	s.Missed = cmp.Or(s.Missed, LatestMissed)
	s.MaxMissed = cmp.Or(s.MaxMissed, 100)
	s.Overlap = cmp.Or(s.Overlap, QueueOverlap)
	if s.Together == 0 {
		s.Together = 1
		if s.Overlap == AllowOverlap {
			s.Together = 4
		}
	}
	s.MaxAttempts = cmp.Or(s.MaxAttempts, 5)
	s.OnPoison = cmp.Or(s.OnPoison, Park)
	s.Timeout = cmp.Or(s.Timeout, 30*time.Second)
	var bad string
	cadence, err := ParseCadence(s.Cron, s.Zone)
	switch {
	case !nameForm.MatchString(s.Name) || len(s.Name) > 100:
		return nil, fmt.Errorf("schedule %q: a name is lower-case words joined by dots, at most 100 bytes", s.Name)
	case !nameForm.MatchString(s.Module):
		bad = fmt.Sprintf("module %q is not lower-case words joined by dots", s.Module)
	case err != nil:
		bad = err.Error()
	case s.Handle == nil:
		bad = "Handle is not set"
	case s.Missed != SkipMissed && s.Missed != LatestMissed && s.Missed != AllMissed:
		bad = fmt.Sprintf("Missed %q is none of skip, latest and all", s.Missed)
	case s.MaxMissed < 1 || s.MaxMissed > 1000:
		bad = fmt.Sprintf("MaxMissed is %d; 1 to 1000", s.MaxMissed)
	case s.Overlap != QueueOverlap && s.Overlap != SkipOverlap && s.Overlap != AllowOverlap:
		bad = fmt.Sprintf("Overlap %q is none of queue, skip and allow", s.Overlap)
	case s.Together < 1 || s.Together > 64:
		bad = fmt.Sprintf("Together is %d; 1 to 64", s.Together)
	case s.Together > 1 && s.Overlap != AllowOverlap:
		bad = fmt.Sprintf("Together is %d, but Overlap is %s", s.Together, s.Overlap)
	case s.MaxAttempts < 1:
		bad = fmt.Sprintf("MaxAttempts is %d; at least 1", s.MaxAttempts)
	case s.OnPoison != Hold && s.OnPoison != Park:
		bad = fmt.Sprintf("OnPoison %q is neither hold nor park", s.OnPoison)
	case s.Timeout < 0:
		bad = fmt.Sprintf("Timeout is %v; it cannot be negative", s.Timeout)
	}
	if bad != "" {
		return nil, fmt.Errorf("schedule %s: %s", s.Name, bad)
	}
	s.cadence = cadence
	return s, nil
}

// Describe answers what the registry and mill.functions show.
func (s Schedule) Describe() Description {
	if s.shown != nil {
		return *s.shown
	}
	return Description{Name: s.Name, Kind: "schedule", Module: s.Module, Listens: []string{strings.TrimSpace(s.Cron + " " + s.Zone)}}
}

// Cadence says when a registered schedule fires, for a preview; that of one which
// was not registered is empty.
func (s Schedule) Cadence() Cadence { return s.cadence }

// Subscription is the subscription that handles the ticks of a registered schedule.
func (s Schedule) Subscription() Subscription {
	shown := s.Describe()
	return Subscription{
		Name: s.Name, Module: s.Module, Events: []string{TickPrefix + s.Name}, Owners: s.Owners, Key: ByKey, Shards: s.Together,
		MaxAttempts: s.MaxAttempts, OnPoison: s.OnPoison, From: FromNow, Timeout: s.Timeout, Batch: 1,
		Handle: func(ctx context.Context, tx pgx.Tx, e Event) error {
			d, err := Data[tickData](e)
			if err != nil {
				return err
			}
			at := d.At
			if s.cadence.zone != nil {
				at = at.In(s.cadence.zone)
			}
			return s.Handle(ctx, tx, Tick{Name: s.Name, At: at, Missed: d.Missed, Manual: d.Manual, Event: e})
		},
		shown: &shown,
	}
}
