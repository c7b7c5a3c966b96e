package host

import (
	"time"

	"github.com/spf13/cobra"
)

func subscriptionCommand(o *options) *cobra.Command {
	members := []*cobra.Command{subscriptionList(o), subscriptionWatch(o), subscriptionShadow(o)}
	for _, op := range operations {
		members = append(members, op.command(o, "subscription"))
	}
	return group("subscription", "Show and operate subscriptions", members...)
}

// subscriptionRow is a row of mill.subscriptions.
type subscriptionRow struct {
	Name        string     `json:"name"`
	Shard       int        `json:"shard"`
	State       string     `json:"state"`
	Position    int64      `json:"position"`
	Head        int64      `json:"head"`
	LagEvents   int64      `json:"lag_events"`
	LagSeconds  float64    `json:"lag_seconds"`
	Attempts    int        `json:"attempts"`
	Reason      *string    `json:"reason"`
	NextRetryAt *time.Time `json:"next_retry_at"`
	Instance    *string    `json:"instance"`
	BlockedBy   *string    `json:"blocked_by"`
}

const listSubscriptions = `
select name, shard, state, position, head, lag_events, lag_seconds::float8, attempts, reason, next_retry_at, instance, blocked_by
  from mill.subscriptions
 order by name, shard`

func subscriptionList(o *options) *cobra.Command {
	return &cobra.Command{Use: "list", Short: "List subscriptions by shard: how far, how far behind, and why", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return listRows(o, cmd, listSubscriptions, []column[subscriptionRow]{
				{"NAME", func(r subscriptionRow) any { return r.Name }},
				{"SHARD", func(r subscriptionRow) any { return r.Shard }},
				{"STATE", func(r subscriptionRow) any { return r.State }},
				{"POSITION", func(r subscriptionRow) any { return r.Position }},
				{"LAG", func(r subscriptionRow) any { return r.LagEvents }},
				{"LAG SECONDS", func(r subscriptionRow) any { return r.LagSeconds }},
				{"ATTEMPTS", func(r subscriptionRow) any { return r.Attempts }},
				{"REASON", func(r subscriptionRow) any { return r.Reason }},
				{"NEXT RETRY", func(r subscriptionRow) any { return r.NextRetryAt }},
				{"HOST", func(r subscriptionRow) any { return r.Instance }},
				{"BLOCKED BY", func(r subscriptionRow) any { return r.BlockedBy }},
			})
		}}
}
