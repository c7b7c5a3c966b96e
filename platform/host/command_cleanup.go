package host

import (
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"
)

var cleanupOperations = []operation{
	{name: "run", short: "Clean up now, beside its times", sql: "select mill.trigger_schedule($1, $2)"},
	scheduleOperations[0], scheduleOperations[1],
}

func cleanupCommand(o *options) *cobra.Command {
	members := []*cobra.Command{
		scheduleList(o, "cleanup", "List clean-ups: when they run next, and what became of the last time"),
		cleanupPreview(o),
	}
	for _, op := range cleanupOperations {
		members = append(members, op.command(o, "cleanup"))
	}
	return group("cleanup", "Show and operate clean-ups", members...)
}

// previewRow is a row of mill.retention_preview.
type previewRow struct {
	Class     string     `json:"class"`
	Scope     string     `json:"scope"`
	Rows      *int64     `json:"rows"`
	Oldest    *time.Time `json:"oldest"`
	BlockedBy *string    `json:"blocked_by"`
}

func cleanupPreview(o *options) *cobra.Command {
	return &cobra.Command{Use: "preview", Short: "Show what clean-ups would delete now, and what keeps more of it", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return listRows(o, cmd, "select class, scope, rows, oldest, blocked_by from mill.retention_preview", []column[previewRow]{
				{"CLASS", func(r previewRow) any { return r.Class }},
				{"SCOPE", func(r previewRow) any { return r.Scope }},
				{"ROWS", func(r previewRow) any { return r.Rows }},
				{"OLDEST", func(r previewRow) any { return r.Oldest }},
				{"BLOCKED BY", func(r previewRow) any { return r.BlockedBy }},
			})
		}}
}

// listRows shows what a reader's query answers.
func listRows[T any](o *options, cmd *cobra.Command, query string, columns []column[T], args ...any) error {
	cfg, err := o.config(cmd, true)
	if err != nil {
		return err
	}
	return o.withConn(cmd.Context(), cfg, "mill_reader", func(conn *pgx.Conn) error {
		rows, err := conn.Query(cmd.Context(), query, args...)
		if err != nil {
			return err
		}
		all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[T])
		if err != nil {
			return err
		}
		return show(o, all, columns)
	})
}
