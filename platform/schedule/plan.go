package schedule

import (
	"time"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/internal/db"
)

// Late is how late a tick may be without its fire time counting as missed: a host
// that was killed, or a database that paused, does not cost a tick.
const Late = 30 * time.Second

// counted is how many missed fire times are counted at least.
const counted = 100

// plan is what becomes of a due schedule; see pgmill.fire_schedules. Times are in
// seconds of the epoch.
type plan struct {
	Name    string  `json:"name"`
	Version int64   `json:"version"`
	Next    *int64  `json:"next"`  // nil: it does not fire again
	Fires   []int64 `json:"fires"` // to be emitted, oldest first
	Last    *int64  `json:"last"`  // the newest fire time that came
	Missed  int     `json:"missed"`
	Reason  *string `json:"reason"`
}

// decide says what to emit of a due schedule and when it fires next. err is a line
// or a zone that cannot be read; the plan then stops the schedule.
func decide(r db.SchedulesDueRow) (plan, error) {
	p := plan{Name: r.Name, Version: r.Version}
	cadence, err := platform.ParseCadence(r.Cron, r.Zone)
	if err != nil {
		reason := string(platform.ReasonBadSchedule)
		p.Reason = &reason
		return p, err
	}
	most := max(counted, int(r.MaxMissed)) + int(Late/time.Second) + 1
	due, following := cadence.Due(r.NextAt.Truncate(time.Second), r.Now, most)
	p.Next = seconds(following)
	for len(due) > 0 && !due[0].After(r.Since) { // before it was declared or resumed
		due = due[1:]
	}
	if len(due) == 0 {
		return p, nil
	}
	p.Last = seconds(due[len(due)-1])
	fires, missed := choose(due, r.Now.Add(-Late), platform.Missed(r.Missed), int(r.MaxMissed))
	p.Missed = min(missed, max(counted, int(r.MaxMissed)))
	for _, at := range fires {
		p.Fires = append(p.Fires, at.Unix())
	}
	return p, nil
}

// choose says which of the fire times that have come are emitted and how many are
// left out: those before limit were missed.
func choose(due []time.Time, limit time.Time, policy platform.Missed, most int) (fires []time.Time, missed int) {
	n := 0
	for n < len(due) && due[n].Before(limit) {
		n++
	}
	switch {
	case policy == platform.AllMissed:
		missed = max(0, n-most)
	case policy == platform.LatestMissed && n == len(due):
		missed = n - 1
	default:
		missed = n
	}
	return due[missed:], missed
}

// seconds is a time of the plan; nil for none.
func seconds(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	s := t.Unix()
	return &s
}
