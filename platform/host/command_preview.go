package host

import (
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pgmill/pgmill/platform"
)

const previewMost = 1000

const previewRules = `preview shows the next fire times of a schedule, as its row in mill.schedules has it.

Where the clock is set forward, a local time that it never shows fires at the first instant
after the gap; where it is set back, a time that it shows twice fires the first time. A line
that names every hour, such as "*/30 * * * *", fires each real time that the clock shows a
matching minute, so also twice an hour that comes twice. "@every" knows no clocks: it counts
real time.`

// fireRow is a fire time to come, in the schedule's zone and in UTC.
type fireRow struct {
	At  time.Time `json:"at"`
	UTC time.Time `json:"utc"`
}

func schedulePreview(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "preview NAME", Short: "Show when a schedule fires next, in its zone and in UTC", Long: previewRules, Args: cobra.ExactArgs(1)}
	n := cmd.Flags().IntP("number", "n", 5, fmt.Sprintf("how many fire times, 1 to %d", previewMost))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *n < 1 || *n > previewMost {
			return usageError{fmt.Errorf("host schedule preview: -n %d: write a number from 1 to %d", *n, previewMost)}
		}
		cfg, err := o.config(cmd, true)
		if err != nil {
			return err
		}
		return o.withConn(cmd.Context(), cfg, "mill_reader", func(conn *pgx.Conn) error {
			var s scheduleRow
			var now time.Time
			err := conn.QueryRow(cmd.Context(), "select cron, zone, next_at, reason, now() from mill.schedules where name = $1", args[0]).
				Scan(&s.Cron, &s.Zone, &s.NextAt, &s.Reason, &now)
			if errors.Is(err, pgx.ErrNoRows) {
				return notFound(fmt.Sprintf("no schedule %q; `host schedule list` shows them", args[0]))
			} else if err != nil {
				return err
			}
			if s.NextAt == nil {
				return conflict(fmt.Sprintf("%s does not fire: %s", args[0], cell(s.Reason)))
			}
			cadence, err := platform.ParseCadence(s.Cron, s.Zone)
			if err != nil {
				return err
			}
			return show(o, upcoming(cadence, *s.NextAt, now, *n), []column[fireRow]{
				{"AT", func(r fireRow) any { return r.At.Format("Mon 2006-01-02 15:04:05 -0700 MST") }},
				{"UTC", func(r fireRow) any { return r.UTC.Format(time.DateTime) }},
			})
		})
	}
	return cmd
}

// upcoming are the first n fire times after now of a schedule that is due at next.
func upcoming(c platform.Cadence, next, now time.Time, n int) (fires []fireRow) {
	_, at := c.Due(next, now, 1)
	for ; len(fires) < n && !at.IsZero(); at = c.Next(at) {
		fires = append(fires, fireRow{at, at.UTC()})
	}
	return fires
}
