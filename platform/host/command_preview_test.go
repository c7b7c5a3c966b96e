package host

import (
	"strings"
	"testing"
	"time"

	"github.com/pgmill/pgmill/platform"
)

// F60: an operator sees what a schedule does when the clock changes.
func TestPreviewAcrossAChangeOfTheClock(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, cron, zone, next, now, want string }{
		{"a time in the gap fires at its end", "30 2 * * *", "America/New_York", "2026-03-07T07:30:00Z", "2026-03-07T00:00:00Z",
			"Sat 02:30 EST 07:30Z, Sun 03:00 EDT 07:00Z, Mon 02:30 EDT 06:30Z"},
		{"a time that comes twice fires the first time", "30 1 * * *", "America/New_York", "2026-10-31T05:30:00Z", "2026-10-31T00:00:00Z",
			"Sat 01:30 EDT 05:30Z, Sun 01:30 EDT 05:30Z, Mon 01:30 EST 06:30Z"},
		{"each half hour is real", "*/30 * * * *", "America/New_York", "2026-11-01T05:30:00Z", "2026-11-01T05:00:00Z",
			"Sun 01:30 EDT 05:30Z, Sun 01:00 EST 06:00Z, Sun 01:30 EST 06:30Z"},
		{"a midnight that there is not", "0 0 * * *", "America/Santiago", "2026-09-05T04:00:00Z", "2026-09-05T00:00:00Z",
			"Sat 00:00 -04 04:00Z, Sun 01:00 -03 04:00Z, Mon 00:00 -03 03:00Z"},
		{"an interval goes by its row", "@every 12h", "Europe/Berlin", "2026-03-28T20:15:00Z", "2026-03-28T12:00:00Z",
			"Sat 21:15 CET 20:15Z, Sun 10:15 CEST 08:15Z, Sun 22:15 CEST 20:15Z"},
		{"one that is overdue, too", "@every 12h", "", "2026-03-27T20:15:00Z", "2026-03-28T21:00:00Z",
			"Sun 08:15 UTC 08:15Z, Sun 20:15 UTC 20:15Z, Mon 08:15 UTC 08:15Z"},
		{"an overdue line fires at its next time", "30 2 * * *", "Europe/Berlin", "2026-03-27T01:30:00Z", "2026-03-28T12:00:00Z",
			"Sun 03:00 CEST 01:00Z, Mon 02:30 CEST 00:30Z, Tue 02:30 CEST 00:30Z"},
	} {
		c, err := platform.ParseCadence(tt.cron, tt.zone)
		if err != nil {
			t.Fatal(err)
		}
		at := func(text string) time.Time {
			v, err := time.Parse(time.RFC3339, text)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		var got []string
		for _, f := range upcoming(c, at(tt.next), at(tt.now), 3) {
			got = append(got, f.At.Format("Mon 15:04 MST ")+f.UTC.Format("15:04Z"))
		}
		if all := strings.Join(got, ", "); all != tt.want {
			t.Errorf("%s: %q in %s fires at\n  %s\nwant\n  %s", tt.name, tt.cron, tt.zone, all, tt.want)
		}
	}
}
