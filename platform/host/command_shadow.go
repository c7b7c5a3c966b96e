package host

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/subscription"
)

// shadowRow counts the events of one outcome: ok, or a reason.
type shadowRow struct {
	Outcome string `json:"outcome"`
	Events  int64  `json:"events"`
	First   int64  `json:"first"` // the position of the first one
}

func subscriptionShadow(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "shadow NAME", Short: "Run this build's handler on past events, take back what it writes, and count how it went",
		Long: "shadow runs the handler of this build, in this process, on each event in a transaction\nthat is rolled back: no cursor moves and nothing is emitted. Each event is on its own:\nwhat the handler wrote for those before is not there. Exit code 1 if one fails.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("host subscription shadow: say which subscription, one; `host functions` shows them")
			}
			return nil
		}}
	from := cmd.Flags().String("from", "zero", "zero, a position as in mill.events, or a time like 2026-11-29T18:00:00Z")
	to := cmd.Flags().String("to", "now", "now, a position, or a time: the last event")
	sure := cmd.Flags().Bool("yes", false, "do it without asking")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, ok := o.subscription(args[0])
		if !ok {
			return usageError{fmt.Errorf("host subscription shadow: this build has no function %q%s", args[0], didYouMean(args[0], o.functionNames()))}
		}
		cfg, err := o.config(cmd, true)
		if err != nil {
			return err
		}
		if !s.Replayable && !*sure {
			if err := o.ask(cmd.Context(), s.Name+" is not declared Replayable: what its handler does outside Postgres will be done again."); err != nil {
				return err
			}
		}
		return o.shadow(cmd.Context(), cfg, s, *from, *to)
	}
	return cmd
}

func (o *options) shadow(ctx context.Context, cfg Config, s platform.Subscription, from, to string) error {
	log, outcomes := o.logger(cfg), map[string]*shadowRow{}
	err := o.withConn(ctx, cfg, "pgmill_runtime", func(conn *pgx.Conn) error {
		run := subscription.Shadow{Subscription: s, Role: o.reg.Role(s.Module),
			Connect: func(ctx context.Context) (*pgx.Conn, error) { return pgx.ConnectConfig(ctx, conn.Config()) },
			Done: func(e platform.Event, reason platform.Reason, cause error) {
				outcome := string(reason)
				if reason == "" {
					outcome = "ok"
				}
				if outcomes[outcome] == nil {
					outcomes[outcome] = &shadowRow{Outcome: outcome, First: e.Pos}
					if cause != nil {
						log.Warn("event fails", "subscription", s.Name, "pos", e.Pos, "reason", outcome, "error", cause)
					}
				}
				outcomes[outcome].Events++
			}}
		after, upto, err := run.Positions(ctx, from, to)
		if err != nil {
			return err
		}
		return run.Run(ctx, after, upto)
	})
	rows := []shadowRow{}
	all, failed := int64(0), int64(0)
	for _, name := range slices.Sorted(maps.Keys(outcomes)) {
		rows = append(rows, *outcomes[name])
		all += outcomes[name].Events
		if name != "ok" {
			failed += outcomes[name].Events
		}
	}
	if err == nil || len(rows) > 0 {
		if err := show(o, rows, []column[shadowRow]{
			{"OUTCOME", func(r shadowRow) any { return r.Outcome }},
			{"EVENTS", func(r shadowRow) any { return r.Events }},
			{"FIRST AT", func(r shadowRow) any { return r.First }},
		}); err != nil {
			return err
		}
	}
	if err == nil && failed > 0 {
		err = fmt.Errorf("%d of %d events fail", failed, all)
	}
	return err
}

// subscription is the subscription of a name, or the working of a schedule.
func (o *options) subscription(name string) (platform.Subscription, bool) {
	all := platform.Of[platform.Subscription](o.reg)
	for _, s := range platform.Of[platform.Schedule](o.reg) {
		all = append(all, s.Subscription())
	}
	i := slices.IndexFunc(all, func(s platform.Subscription) bool { return s.Name == name })
	if i < 0 {
		return platform.Subscription{}, false
	}
	return all[i], true
}

func (o *options) functionNames() []string {
	var names []string
	for _, f := range o.reg.Functions() {
		names = append(names, f.Describe().Name)
	}
	return names
}
