package host

import (
	"time"

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
	members := []*cobra.Command{scheduleList(o, "schedule", "List schedules: when they fire next, and what became of the last time"), schedulePreview(o)}
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
select s.name, s.cron, s.zone, s.next_at, s.last_at, s.last_state, s.reason
  from mill.schedules s
  join mill.functions f on f.name = s.name and f.kind = $1
 order by s.name`

// scheduleList lists functions of a kind that has ticks: schedule or cleanup.
func scheduleList(o *options, kind, short string) *cobra.Command {
	return &cobra.Command{Use: "list", Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return listRows(o, cmd, listSchedules, []column[scheduleRow]{
				{"NAME", func(r scheduleRow) any { return r.Name }},
				{"CRON", func(r scheduleRow) any { return r.Cron }},
				{"ZONE", func(r scheduleRow) any { return r.Zone }},
				{"NEXT", func(r scheduleRow) any { return r.NextAt }},
				{"LAST", func(r scheduleRow) any { return r.LastAt }},
				{"LAST STATE", func(r scheduleRow) any { return r.LastState }},
				{"REASON", func(r scheduleRow) any { return r.Reason }},
			}, kind)
		}}
}
