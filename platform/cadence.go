package platform

import (
	"fmt"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // zones are known on machines without zone files, too

	"github.com/robfig/cron/v3"
)

// Cadence says when a schedule fires: five cron fields in a time zone, or a fixed
// interval. It is a value without a clock; ParseCadence makes it. The zero value
// never fires.
type Cadence struct {
	fields *cron.SpecSchedule // nil: every
	zone   *time.Location
	every  time.Duration
}

const (
	maxCron = 200 // bytes
	// cronReach is how far the library looks for a match, and cronTries how often we
	// ask it: 29 February is up to eight years away.
	cronReach = 5 // years
	cronTries = 3
)

var cronParser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// ParseCadence reads "minute hour day-of-month month day-of-week", a name such as
// @daily, or "@every" and a duration of whole seconds. zone is a name of the IANA
// database; "" means UTC. The error says in one line what is wrong: a field, the
// zone, or that it never fires.
func ParseCadence(line, zone string) (Cadence, error) {
	if len(line) > maxCron || len(zone) > maxCron {
		return Cadence{}, fmt.Errorf("cron line and zone have at most %d bytes each", maxCron)
	}
	loc, ok := location(zone)
	if !ok {
		return Cadence{}, fmt.Errorf("zone %q is not in the time zone database", zone)
	}
	if every, ok := strings.CutPrefix(line, "@every "); ok {
		d, err := time.ParseDuration(strings.TrimSpace(every))
		switch {
		case err != nil:
			return Cadence{}, fmt.Errorf("cron %q: @every takes a duration such as 90s or 1h30m", line)
		case d < time.Second || d%time.Second != 0:
			return Cadence{}, fmt.Errorf("cron %q: @every takes whole seconds, at least 1s", line)
		}
		return Cadence{zone: loc, every: d}, nil
	}
	if strings.Contains(line, "TZ=") {
		return Cadence{}, fmt.Errorf("cron %q: the time zone belongs in Zone", line)
	}
	parsed, err := cronParser.Parse(line)
	if err != nil {
		return Cadence{}, fmt.Errorf("cron %q: %s", line, oneLine(err))
	}
	fields, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return Cadence{}, fmt.Errorf("cron %q: not five fields", line)
	}
	fields.Location = time.UTC // wall times are reckoned as if they were UTC
	c := Cadence{fields: fields, zone: loc}
	if wall := c.nextWall(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)); wall.IsZero() {
		return Cadence{}, fmt.Errorf("cron %q: it never fires: no month has that day", line)
	}
	return c, nil
}

var locations sync.Map // zone → *time.Location; reading a zone file takes a while

func location(zone string) (*time.Location, bool) {
	if known, ok := locations.Load(zone); ok {
		return known.(*time.Location), true
	}
	loc, err := time.LoadLocation(zone)
	if err != nil || zone == "Local" {
		return nil, false
	}
	locations.Store(zone, loc)
	return loc, true
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// Next returns the first fire time after a time, in the schedule's zone; of an
// interval, the time that much later. Zero: it never fires.
func (c Cadence) Next(after time.Time) time.Time {
	switch {
	case c.every > 0:
		return after.Truncate(time.Second).Add(c.every).In(c.zone)
	case c.fields == nil:
		return time.Time{}
	case c.fields.Hour&allHours == allHours:
		return c.nextReal(after)
	default:
		return c.nextLocal(after)
	}
}

// Due lists the fire times that have come by now, when the first of them is first:
// the newest most of them, oldest first. following is the one after now. All are in the
// schedule's zone.
func (c Cadence) Due(first, now time.Time, most int) (due []time.Time, following time.Time) {
	if now.Before(first) {
		return nil, first.In(c.zone)
	}
	if c.every > 0 {
		n := int64(now.Sub(first) / c.every)
		for k := max(0, n-int64(most)+1); k <= n; k++ {
			due = append(due, first.Add(time.Duration(k)*c.every).In(c.zone))
		}
		return due, first.Add(time.Duration(n+1) * c.every).In(c.zone)
	}
	// Backwards in growing steps, so that a long absence costs no more than most.
	for span := time.Duration(most) * time.Minute; ; span *= 4 {
		from := now.Add(-span)
		whole := !from.After(first)
		due = due[:0]
		if whole {
			from = first
			due = append(due, first.In(c.zone))
		}
		for t := c.Next(from); !t.IsZero() && !t.After(now); t = c.Next(t) {
			due = append(due, t)
		}
		if whole || len(due) >= most || span > 100*365*24*time.Hour {
			return due[max(0, len(due)-most):], c.Next(now)
		}
	}
}

// allHours are the bits of an hour field that names every hour.
const allHours = 1<<24 - 1

// nextWall is the first matching wall time after one, both written as UTC.
func (c Cadence) nextWall(after time.Time) time.Time {
	for range cronTries {
		if wall := c.fields.Next(after); !wall.IsZero() {
			return wall
		}
		after = time.Date(after.Year()+cronReach, 1, 1, 0, 0, 0, 0, time.UTC).Add(-time.Second)
	}
	return time.Time{}
}

// nextLocal is Next for local times, each of which comes once: the first of a time
// that the clock shows twice; for one that it never shows, the end of the gap.
func (c Cadence) nextLocal(after time.Time) time.Time {
	wall := wallOf(after, c.zone)
	for {
		if wall = c.nextWall(wall); wall.IsZero() {
			return time.Time{}
		}
		if at := c.instant(wall); at.After(after) {
			return at
		}
	}
}

// instant is when a clock in the zone first shows a wall time, or passes over it.
func (c Cadence) instant(wall time.Time) time.Time {
	at := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(), 0, c.zone)
	start, end := at.ZoneBounds()
	switch shown := wallOf(at, c.zone); {
	case shown.After(wall): // a gap, reckoned with the offset before it
		return start
	case shown.Before(wall): // with the offset after it
		return end
	case start.IsZero():
		return at
	}
	_, before := start.Add(-time.Second).Zone()
	if first := wall.Add(-time.Duration(before) * time.Second); first.Before(start) {
		return first.In(c.zone)
	}
	return at
}

// nextReal is Next for a line that names every hour: each time that the clock shows
// a matching minute.
func (c Cadence) nextReal(after time.Time) time.Time {
	at := after.In(c.zone)
	wall := wallOf(at, c.zone)
	for {
		_, offset := at.Zone()
		_, end := at.ZoneBounds()
		next := c.nextWall(wall)
		if next.IsZero() {
			return time.Time{}
		}
		t := next.Add(-time.Duration(offset) * time.Second).In(c.zone)
		if end.IsZero() || t.Before(end) {
			return t
		}
		at, wall = end, wallOf(end, c.zone).Add(-time.Second) // the clock has jumped
	}
}

// wallOf is what a clock in the zone shows, written as UTC.
func wallOf(t time.Time, zone *time.Location) time.Time {
	t = t.In(zone)
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}
