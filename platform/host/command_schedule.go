package host

import (
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"
)

var scheduleOperations = []operation{
	{name: "pause", short: "Let fire times pass until resume; ticks emitted before are still handled",
		sql: "select mill.pause_schedule($1, $2)"},
	{name: "resume", short: "End a pause: the next fire time fires, those that passed do not",
		sql: "select mill.resume_schedule($1, $2)"},
	{name: "trigger", short: "Emit a tick now, beside the fire times",
		sql: "select mill.trigger_schedule($1, $2)"},
}

func scheduleCommand(o *options) *cobra.Command {
	members := []*cobra.Command{scheduleList(o)}
	for _, op := range scheduleOperations {
		members = append(members, op.command(o, "schedule"))
	}
	return group("schedule", "Show and operate schedules", members...)
}

// scheduleRow is a row of mill.schedules.
type scheduleRow struct {
	Name      string     `json:"name"`
	Cron      string     `json:"cron"`
	Zone      string     `json:"zone"`
	NextAt    *time.Time `json:"next_at"`
	LastAt    *time.Time `json:"last_at"`
	LastState *string    `json:"last_state"`
	Reason    *string    `json:"reason"`
}

const listSchedules = `
select name, cron, zone, next_at, last_at, last_state, reason
  from mill.schedules
 order by name`

func scheduleList(o *options) *cobra.Command {
	return &cobra.Command{Use: "list", Short: "List schedules: when they fire next, and what became of the last time", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := o.config(cmd, true)
			if err != nil {
				return err
			}
			return o.withConn(cmd.Context(), cfg, "mill_reader", func(conn *pgx.Conn) error {
				rows, err := conn.Query(cmd.Context(), listSchedules)
				if err != nil {
					return err
				}
				all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[scheduleRow])
				if err != nil {
					return err
				}
				return show(o, all, []column[scheduleRow]{
					{"NAME", func(r scheduleRow) any { return r.Name }},
					{"CRON", func(r scheduleRow) any { return r.Cron }},
					{"ZONE", func(r scheduleRow) any { return r.Zone }},
					{"NEXT", func(r scheduleRow) any { return r.NextAt }},
					{"LAST", func(r scheduleRow) any { return r.LastAt }},
					{"LAST STATE", func(r scheduleRow) any { return r.LastState }},
					{"REASON", func(r scheduleRow) any { return r.Reason }},
				})
			})
		}}
}
