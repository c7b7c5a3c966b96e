package schedule

import (
	"fmt"
	"testing"
	"time"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/internal/db"
)

func TestF62Decide(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 29, 12, 0, 10, 0, time.UTC)
	tests := []struct {
		name, cron string
		policy     platform.Missed
		most       int32
		first      time.Duration // before now
		since      time.Duration // before now; 0: never resumed
		want       string        // fires as seconds before now, missed, next as seconds after
	}{
		{"on time", "@every 1h", platform.SkipMissed, 100, 10 * time.Second, 0, "[10] 0 3590"},
		{"as late as may be", "@every 1h", platform.SkipMissed, 100, 30 * time.Second, 0, "[30] 0 3570"},
		{"later than that was missed", "@every 1h", platform.SkipMissed, 100, 31 * time.Second, 0, "[] 1 3569"},
		{"the latest of what was missed", "* * * * *", platform.LatestMissed, 100, 10*time.Minute + 10*time.Second, 0, "[10] 10 50"},
		{"the latest, when all were missed", "*/5 11 * * *", platform.LatestMissed, 100, time.Hour + 10*time.Second, 0, "[310] 11 82790"},
		{"seconds that are late are not missed", "@every 10s", platform.SkipMissed, 100, 25 * time.Second, 0, "[25 15 5] 0 5"},
		{"all", "*/10 * * * *", platform.AllMissed, 100, 30*time.Minute + 10*time.Second, 0, "[1810 1210 610 10] 0 590"},
		{"all, but only so many missed and what is on time", "*/10 * * * *", platform.AllMissed, 2, 30*time.Minute + 10*time.Second, 0, "[1210 610 10] 1 590"},
		{"nothing from before it was resumed", "*/10 * * * *", platform.AllMissed, 100, 30*time.Minute + 10*time.Second, 15 * time.Minute, "[610 10] 0 590"},
		{"nothing since it was resumed", "*/10 * * * *", platform.AllMissed, 100, 30*time.Minute + 10*time.Second, time.Second, "[] 0 590"},
		{"missed ones are counted up to a hundred", "@every 1s", platform.LatestMissed, 1, time.Hour, 0, "31 100 1"},
		{"a line that cannot be read", "nonsense", platform.LatestMissed, 1, time.Hour, 0, "bad_schedule"},
	}
	for _, tt := range tests {
		since := now.Add(-tt.since)
		if tt.since == 0 {
			since = time.Unix(0, 0)
		}
		p, err := decide(db.SchedulesDueRow{Cron: tt.cron, Missed: string(tt.policy), MaxMissed: tt.most, NextAt: now.Add(-tt.first), Since: since, Now: now})
		var ago []int64
		for _, f := range p.Fires {
			ago = append(ago, now.Unix()-f)
		}
		got := ""
		switch {
		case p.Reason != nil:
			got = *p.Reason
		case len(ago) > 5:
			got = fmt.Sprint(len(ago), p.Missed, *p.Next-now.Unix())
		default:
			got = fmt.Sprint(ago, p.Missed, *p.Next-now.Unix())
		}
		if got != tt.want || (err != nil) != (p.Reason != nil) {
			t.Errorf("%s: %s, %v; want %s", tt.name, got, err, tt.want)
		}
	}
}
