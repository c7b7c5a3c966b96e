package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/internal/db"
)

// Engine declares the schedules of this build and emits their ticks. All fields are
// needed but Emitted.
type Engine struct {
	Schedules []platform.Schedule
	Pool      *pgxpool.Pool
	Instance  string // the lease's id
	Log       *slog.Logger
	Emitted   func(ticks int) // may be nil
}

const (
	take        = 500 // schedules fired in one transaction
	declareMany = 500
	declareTry  = 10 // times a declaration is read again because a row changed under it
)

// errContended is returned by Declare when rows change faster than they are read.
var errContended = errors.New("schedules kept changing while they were declared")

// Subscriptions are what handles the ticks.
func (e *Engine) Subscriptions() []platform.Subscription {
	subs := make([]platform.Subscription, len(e.Schedules))
	for i, s := range e.Schedules {
		subs[i] = s.Subscription()
	}
	return subs
}

// Declare writes down when the schedules of this build fire. Their subscriptions are
// declared before. What the database has already is left as it is.
func (e *Engine) Declare(ctx context.Context) error {
	for some := range slices.Chunk(e.Schedules, declareMany) {
		if err := e.declare(ctx, some); err != nil {
			return fmt.Errorf("declare schedules: %w", err)
		}
	}
	return nil
}

func (e *Engine) declare(ctx context.Context, some []platform.Schedule) error {
	byName := map[string]platform.Schedule{}
	names := make([]string, len(some))
	for i, s := range some {
		byName[s.Name], names[i] = s, s.Name
	}
	q := db.New(e.Pool)
	for range declareTry {
		known, err := q.SchedulesKnown(ctx, names)
		if err != nil {
			return err
		}
		var news []declaration
		for _, row := range known {
			if d, changed := compare(byName[row.Name], row); changed {
				news = append(news, d)
			}
		}
		if len(news) == 0 {
			return nil
		}
		body, err := json.Marshal(news)
		if err != nil {
			return err
		}
		if _, err := q.SchedulesDeclare(ctx, body); err != nil {
			return err
		}
	}
	return errContended
}

// declaration is what pgmill.declare_schedules puts in place.
type declaration struct {
	Name      string  `json:"name"`
	Version   *int64  `json:"version"` // nil: it is new
	Cron      string  `json:"cron"`
	Zone      string  `json:"zone"`
	Missed    string  `json:"missed"`
	MaxMissed int     `json:"max_missed"`
	Overlap   string  `json:"overlap"`
	Next      *int64  `json:"next"`
	Reason    *string `json:"reason"`
}

// compare says whether a declaration differs from what the database has, and what
// the row becomes. It keeps its next fire time unless that was reckoned from another
// line, or is not there.
func compare(s platform.Schedule, row db.SchedulesKnownRow) (d declaration, changed bool) {
	d = declaration{Name: s.Name, Version: row.Version, Cron: s.Cron, Zone: s.Zone,
		Missed: string(s.Missed), MaxMissed: s.MaxMissed, Overlap: string(s.Overlap)}
	reason := ""
	if !s.Owners.Complete() {
		reason = string(platform.ReasonOwnersIncomplete)
		d.Reason = &reason
	}
	same := row.Version != nil && row.Cron == s.Cron && row.Zone == s.Zone && row.Reason == reason
	if same && row.Missed == d.Missed && int(row.MaxMissed) == s.MaxMissed && row.Overlap == d.Overlap {
		return d, false
	}
	switch {
	case reason != "":
	case same && row.NextAt != nil:
		d.Next = seconds(*row.NextAt)
	default:
		from := row.Now
		if row.FiredTo != nil && row.FiredTo.After(from) {
			from = *row.FiredTo
		}
		d.Next = seconds(s.Cadence().Next(from))
	}
	return d, true
}

// Sweep emits the ticks that are due and answers how many, and whether schedules
// were moved on: if none was, another host is at it.
func (e *Engine) Sweep(ctx context.Context) (ticks int, moved bool, err error) {
	conn, err := e.Pool.Acquire(ctx) // one for all: those who handle the first ticks want the others
	if err != nil {
		return 0, false, fmt.Errorf("no connection to emit ticks: %w", err)
	}
	defer conn.Release()
	for {
		read, fired, err := e.sweep(ctx, db.New(conn))
		ticks += int(fired.Ticks)
		moved = moved || fired.Moved > 0
		if err != nil || read < take || fired.Moved == 0 {
			return ticks, moved, err
		}
	}
}

func (e *Engine) sweep(ctx context.Context, q *db.Queries) (read int, fired db.SchedulesFireRow, err error) {
	rows, err := q.SchedulesDue(ctx, db.SchedulesDueParams{Me: e.Instance, Take: take})
	if err != nil {
		return 0, fired, fmt.Errorf("read due schedules: %w", err)
	}
	if len(rows) == 0 {
		return 0, fired, nil
	}
	plans := make([]plan, len(rows))
	for i, r := range rows {
		if plans[i], err = decide(r); err != nil {
			e.Log.Error("schedule stopped: it cannot be read", "schedule", r.Name, "reason", platform.ReasonBadSchedule, "error", err)
		}
	}
	body, err := json.Marshal(plans)
	if err != nil {
		return 0, fired, fmt.Errorf("plan ticks: %w", err)
	}
	if fired, err = q.SchedulesFire(ctx, body); err != nil {
		return 0, fired, fmt.Errorf("emit ticks: %w", err)
	}
	if fired.Ticks > 0 && e.Emitted != nil {
		e.Emitted(int(fired.Ticks))
	}
	return len(rows), fired, nil
}
