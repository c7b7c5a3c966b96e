package platform_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/pgmill/pgmill/platform"
)

func utc(text string) time.Time {
	t, err := time.Parse("2006-01-02 15:04:05", text)
	if err != nil {
		panic(err)
	}
	return t
}

// fires lists the fire times in (after, upto].
func fires(t *testing.T, line, zone string, after, upto time.Time) string {
	t.Helper()
	c, err := platform.ParseCadence(line, zone)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for at := c.Next(after); !at.IsZero() && !at.After(upto); at = c.Next(at) {
		all = append(all, at.UTC().Format("01-02T15:04Z"))
	}
	return strings.Join(all, " ")
}

func TestF60LocalTimesComeOnceEachDay(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, line, zone, after, upto, want string }{
		{"a time in the gap fires at the first instant after it", "30 2 * * *", "America/New_York", "2026-03-07 12:00:00", "2026-03-09 12:00:00", "03-08T07:00Z 03-09T06:30Z"},
		{"the same in Berlin", "30 2 * * *", "Europe/Berlin", "2026-03-28 12:00:00", "2026-03-30 12:00:00", "03-29T01:00Z 03-30T00:30Z"},
		{"a midnight that does not exist", "0 0 * * *", "America/Santiago", "2026-09-05 12:00:00", "2026-09-07 12:00:00", "09-06T04:00Z 09-07T03:00Z"},
		{"a gap of half an hour", "15 2 * * *", "Australia/Lord_Howe", "2026-10-02 17:00:00", "2026-10-04 17:00:00", "10-03T15:30Z 10-04T15:15Z"},
		{"two times in one gap are one instant", "0,30 2 * * *", "America/New_York", "2026-03-08 00:00:00", "2026-03-09 00:00:00", "03-08T07:00Z"},
		{"the gap's end and a time at it are one instant", "0 2,3 * * *", "America/New_York", "2026-03-08 00:00:00", "2026-03-09 00:00:00", "03-08T07:00Z"},
		{"a repeated time fires the first time", "30 1 * * *", "America/New_York", "2026-10-31 12:00:00", "2026-11-02 12:00:00", "11-01T05:30Z 11-02T06:30Z"},
		{"also reckoned from between the two", "30 1 * * *", "America/New_York", "2026-11-01 06:00:00", "2026-11-02 12:00:00", "11-02T06:30Z"},
		{"also each second hour", "0 */2 * * *", "Europe/Berlin", "2026-10-24 22:30:00", "2026-10-25 04:00:00", "10-25T00:00Z 10-25T03:00Z"},
		{"every half hour is real", "*/30 * * * *", "America/New_York", "2026-11-01 04:30:00", "2026-11-01 07:00:00", "11-01T05:00Z 11-01T05:30Z 11-01T06:00Z 11-01T06:30Z 11-01T07:00Z"},
		{"every half hour over a gap", "*/30 * * * *", "America/New_York", "2026-03-08 06:00:00", "2026-03-08 07:30:00", "03-08T06:30Z 03-08T07:00Z 03-08T07:30Z"},
		{"every hour is real", "15 * * * *", "Europe/Berlin", "2026-10-24 23:30:00", "2026-10-25 02:30:00", "10-25T00:15Z 10-25T01:15Z 10-25T02:15Z"},
		{"a day that a zone left out", "0 12 * * *", "Pacific/Apia", "2011-12-29 12:00:00", "2011-12-31 12:00:00", "12-29T22:00Z 12-30T10:00Z 12-30T22:00Z"},
		{"no zone is UTC", "30 2 * * *", "", "2026-03-28 12:00:00", "2026-03-30 12:00:00", "03-29T02:30Z 03-30T02:30Z"},
		{"an interval knows no clocks", "@every 12h", "America/New_York", "2026-03-07 12:00:00", "2026-03-09 00:00:00", "03-08T00:00Z 03-08T12:00Z 03-09T00:00Z"},
		{"a day of the month or of the week", "0 0 13 * 5", "", "2026-11-01 00:00:00", "2026-11-14 00:00:00", "11-06T00:00Z 11-13T00:00Z"},
	}
	for _, tt := range tests {
		if got := fires(t, tt.line, tt.zone, utc(tt.after), utc(tt.upto)); got != tt.want {
			t.Errorf("%s: %q in %s fires at\n  %s\nwant\n  %s", tt.name, tt.line, tt.zone, got, tt.want)
		}
	}
}

// Against a clock that is watched second by second, or minute by minute: a fixed
// line fires when the clock first shows one of its times or passes over it, a line
// of every hour whenever it shows one.
func TestF60NextIsWhatAWatchedClockShows(t *testing.T) {
	t.Parallel()
	zones := []string{"America/New_York", "America/Santiago", "Australia/Lord_Howe", "Europe/Berlin", "Africa/Casablanca", "Asia/Kathmandu", "America/St_Johns", "Pacific/Chatham"}
	random := rand.New(rand.NewPCG(60, 60))
	for range 200 {
		zone := zones[random.IntN(len(zones))]
		loc, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		_, start := time.Date(2026, time.Month(1+random.IntN(12)), 1, 0, 0, 0, 0, time.UTC).In(loc).ZoneBounds()
		if start.IsZero() {
			start = utc("2026-06-01 00:00:00")
		}
		start = start.Add(-30 * time.Hour).UTC().Truncate(time.Minute)
		minute, hour := random.IntN(60), random.IntN(6)
		real := random.IntN(2) == 0
		line := time.Date(0, 1, 1, hour, minute, 0, 0, time.UTC).Format("4 15 * * *")
		if real {
			line = time.Date(0, 1, 1, hour, minute, 0, 0, time.UTC).Format("4 * * * *")
		}
		var want []string
		done := map[string]bool{} // by day
		shown := start.Add(-time.Minute).In(loc).Format("2006-01-02 15:04")
		for at := start; at.Before(start.Add(60 * time.Hour)); at = at.Add(time.Minute) {
			now := at.In(loc).Format("2006-01-02 15:04")
			day := now[:10]
			target := time.Date(0, 1, 1, hour, minute, 0, 0, time.UTC).Format("15:04")
			switch {
			case real && now[14:] == target[3:], !real && shown < day+" "+target && now >= day+" "+target && !done[day]:
				done[day] = true
				want = append(want, at.Format("01-02T15:04Z"))
			}
			shown = now
		}
		if got := fires(t, line, zone, start.Add(-time.Second), start.Add(60*time.Hour-time.Second)); got != strings.Join(want, " ") {
			t.Errorf("%q in %s from %v fires at\n  %s\nwant\n  %s", line, zone, start, got, strings.Join(want, " "))
		}
	}
}

func TestF63ImpossibleAndHostileLines(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, line, zone, want string }{ // want "": it is right
		{"29 February is right", "0 0 29 2 *", "", ""},
		{"a named day is right", "0 9 * jan-mar MON-FRI", "", ""},
		{"@daily is right", "@daily", "Europe/Berlin", ""},
		{"a second is right", "@every 1s", "", ""},
		{"30 February", "0 0 30 2 *", "", "it never fires"},
		{"31 April and June", "0 0 31 4,6 *", "", "it never fires"},
		{"an empty list", "0 0 , * *", "", "it never fires"},
		{"no interval", "@every 0s", "", "at least 1s"},
		{"a nanosecond", "@every 1ns", "", "at least 1s"},
		{"below a second", "@every 999ms", "", "at least 1s"},
		{"a second and a half", "@every 1500ms", "", "whole seconds"},
		{"a negative interval", "@every -1h", "", "at least 1s"},
		{"an interval without unit", "@every 5", "", "such as 90s"},
		{"an interval too long for a duration", "@every 99999999999h", "", "such as 90s"},
		{"@reboot", "@reboot", "", "@reboot"},
		{"weekday 7", "* * * * 7", "", "above maximum (6): 7"},
		{"minute 60", "60 * * * *", "", "above maximum (59): 60"},
		{"a step of nothing", "*/0 * * * *", "", "step"},
		{"four fields", "* * * *", "", "expected exactly 5 fields"},
		{"six fields", "0 * * * * *", "", "expected exactly 5 fields"},
		{"nothing", "", "", "empty"},
		{"two lines", "* * *\n* x", "", "failed to parse"},
		{"a zone inside", "TZ=Nowhere/X * * * * *", "", "belongs in Zone"},
		{"a zone inside, and nothing else", "CRON_TZ=UTC", "", "belongs in Zone"},
		{"no such zone", "* * * * *", "Nowhere/X", `zone "Nowhere/X"`},
		{"a path", "* * * * *", "../../etc/passwd", "zone"},
		{"this machine's zone", "* * * * *", "Local", `zone "Local"`},
		{"10 kB", strings.Repeat("1", 10_000) + " * * * *", "", "at most 200 bytes"},
		{"a million elements", strings.Repeat("1,", 1_000_000) + "1 * * * *", "", "at most 200 bytes"},
	}
	for _, tt := range tests {
		began := time.Now()
		_, err := platform.ParseCadence(tt.line, tt.zone)
		if took := time.Since(began); took > 50*time.Millisecond {
			t.Errorf("%s: it took %v", tt.name, took)
		}
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %v, want nil", tt.name, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n")):
			t.Errorf("%s: %v; want one line with %q", tt.name, err, tt.want)
		}
	}
}

func TestF6329FebruaryIsUpToEightYearsAway(t *testing.T) {
	t.Parallel()
	c, err := platform.ParseCadence("0 0 29 2 *", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ after, want string }{
		{"2026-11-29 00:00:00", "2028-02-29"},
		{"2096-02-29 00:00:00", "2104-02-29"},
		{"2096-03-01 00:00:00", "2104-02-29"},
	} {
		if got := c.Next(utc(tt.after)).Format(time.DateOnly); got != tt.want {
			t.Errorf("Next(%s) = %s, want %s", tt.after, got, tt.want)
		}
	}
	if at := (platform.Cadence{}).Next(utc("2026-01-01 00:00:00")); !at.IsZero() {
		t.Errorf("the zero cadence fires at %v", at)
	}
}

func TestF62DueAreTheNewest(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, line, first, now string
		most                   int
		want                   string // and the following
	}{
		{"not yet", "*/10 * * * *", "2026-01-01 00:10:00", "2026-01-01 00:09:59", 5, "| 00:10"},
		{"just now", "*/10 * * * *", "2026-01-01 00:10:00", "2026-01-01 00:10:00", 5, "00:10 | 00:20"},
		{"several", "*/10 * * * *", "2026-01-01 00:10:00", "2026-01-01 00:35:00", 5, "00:10 00:20 00:30 | 00:40"},
		{"more than asked for", "*/10 * * * *", "2026-01-01 00:10:00", "2026-01-01 02:35:00", 3, "02:10 02:20 02:30 | 02:40"},
		{"a row whose time was moved by hand", "0 0 1 1 *", "2026-01-01 00:07:00", "2026-01-01 00:08:00", 3, "00:07 | 00:00"},
		{"an interval", "@every 7m", "2026-01-01 00:10:00", "2026-01-01 00:25:00", 5, "00:10 00:17 00:24 | 00:31"},
		{"an interval, more than asked for", "@every 7m", "2026-01-01 00:10:00", "2026-01-01 00:25:00", 2, "00:17 00:24 | 00:31"},
		{"seldom, after years", "0 5 1 1 *", "1990-01-01 05:00:00", "2026-01-01 06:00:00", 2, "05:00 05:00 | 05:00"},
	}
	for _, tt := range tests {
		c, err := platform.ParseCadence(tt.line, "")
		if err != nil {
			t.Fatal(err)
		}
		due, next := c.Due(utc(tt.first), utc(tt.now), tt.most)
		var got []string
		for _, at := range due {
			got = append(got, at.Format("15:04"))
		}
		if all := strings.TrimSpace(strings.Join(got, " ") + " | " + next.Format("15:04")); all != tt.want {
			t.Errorf("%s: Due(%s, %s, %d) = %s, want %s", tt.name, tt.first, tt.now, tt.most, all, tt.want)
		}
	}
}

// A second's schedule that rested for ten years costs no more than what is asked for.
func TestF62ALongAbsenceIsCheap(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"@every 1s", "* * * * *", "0 0 29 2 *"} {
		c, err := platform.ParseCadence(line, "Europe/Berlin")
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		due, next := c.Due(utc("2000-02-29 00:00:00"), utc("2026-11-29 12:00:00"), 1000)
		if took := time.Since(began); took > time.Second || len(due) == 0 || len(due) > 1000 || !next.After(utc("2026-11-29 12:00:00")) {
			t.Errorf("%s: %d due, then %v, in %v", line, len(due), next, took)
		}
	}
}
