package host

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"
)

// operation is one thing that an operator does to a subscription or a schedule: a
// function of schema mill, which checks, audits and answers in a few words.
type operation struct {
	name, short string
	sql         string // $1 is the name, then flags in order, the reason last
	flags       []operationFlag
	// warn explains a destructive operation before it is done; nil: not destructive.
	warn func(name string, of func(flag string) string) string
	// check says what is wrong with the flags together; nil: nothing can be.
	check func(of func(flag string) string) error
	// follow is what is shown of the subscription afterwards, until it is over; nil: nothing.
	follow following
}

type operationFlag struct {
	name, preset, usage string
	isSwitch            bool // not a parameter of the function
}

var shardFlag = operationFlag{name: "shard", preset: "0", usage: "shard number"}

var operations = []operation{
	{name: "pause", short: "Stop delivering until resume",
		sql: "select mill.pause_subscription($1, $2)"},
	{name: "resume", short: "End a pause, or try a held or failing event again now",
		sql: "select mill.resume_subscription($1, $2)"},
	{name: "hold", short: "Stop retrying a shard's failing event",
		sql: "select mill.hold_subscription($1, $2::int, $3)", flags: []operationFlag{shardFlag}},
	{name: "park", short: "Set a shard's failing event and its key aside, and go on",
		sql: "select mill.park_subscription($1, $2::int, $3)", flags: []operationFlag{shardFlag}},
	{name: "unpark", short: "Replay parked keys from their parked event",
		sql: "select mill.unpark($1, nullif($2, ''), $3)",
		flags: []operationFlag{{name: "key", usage: "the key, as in mill.parked_events"},
			{name: "all", usage: "all parked keys", isSwitch: true}},
		check: func(of func(string) string) error {
			if (of("key") == "") == (of("all") != "true") {
				return errors.New("say --key KEY or --all")
			}
			return nil
		}},
	{name: "drop", short: "Skip a failing or parked event for good",
		sql: "select mill.drop_event($1, $2::int, nullif($3, '')::bigint, $4)",
		flags: []operationFlag{shardFlag,
			{name: "pos", usage: "position of a parked event (none: the failing event)"}},
		warn: func(name string, of func(string) string) string {
			what := "The failing event"
			if of("pos") != "" {
				what = "The parked event at " + of("pos")
			}
			return fmt.Sprintf("%s of %s, shard %s, will never be handled; later events of its key will be.", what, name, of("shard"))
		}},
	{name: "move", short: "Move a subscription to now (skip what waits), zero, a position or a time (repeat)",
		sql:   "select mill.move_subscription($1, $2, $3)",
		flags: []operationFlag{{name: "to", usage: "now, zero, a position as in mill.events, or a time like 2026-11-29T18:00:00Z"}},
		check: func(of func(string) string) error {
			if of("to") == "" {
				return errors.New("say --to now, --to zero, --to POSITION or --to TIME")
			}
			return nil
		},
		warn: func(name string, of func(string) string) string {
			if of("to") == "now" {
				return fmt.Sprintf("What waits for %s is skipped and will never be handled, its failing and parked events included.", name)
			}
			return fmt.Sprintf("%s will go on from %s: what it has handled after that it handles again, and its effects happen a second time; what lies between, if that is ahead, is skipped. Its failing and parked events are forgotten.", name, of("to"))
		}},
	{name: "replay", short: "Handle events again, from the first, a position or a time, and show how far it is",
		sql: "select mill.replay_subscription($1, $2, $3)", follow: caughtUp,
		flags: []operationFlag{{name: "from", preset: "zero", usage: "zero, a position as in mill.events, or a time like 2026-11-29T18:00:00Z"}},
		warn: func(name string, of func(string) string) string {
			return fmt.Sprintf("%s will handle every event from %s on again: its effects happen a second time. Its parked events are forgotten, since they come again.", name, of("from"))
		}},
	{name: "reshard", short: "Change how many shards a subscription has, each key in its order, and show how far it is",
		sql: "select mill.reshard_subscription($1, $2::int, $3)", follow: resharded,
		flags: []operationFlag{{name: "shards", usage: "how many, 1 to 1024"}},
		check: func(of func(string) string) error {
			if of("shards") == "" {
				return errors.New("say --shards N")
			}
			return nil
		}},
}

// command is the operation as a member of a group: subscription or schedule.
func (op operation) command(o *options, group string) *cobra.Command {
	cmd := &cobra.Command{Use: op.name + " NAME", Short: op.short, Args: func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("host %s %s: say which %s, one; `host %s list` shows them", group, op.name, group, group)
		}
		return nil
	}}
	for _, f := range op.flags {
		if f.isSwitch {
			cmd.Flags().Bool(f.name, false, f.usage)
			continue
		}
		cmd.Flags().String(f.name, f.preset, f.usage)
	}
	reason := cmd.Flags().String("reason", "", "why, for the audit")
	sure := false
	if op.warn != nil {
		cmd.Flags().BoolVar(&sure, "yes", false, "do it without asking")
	}
	detach := false
	if op.follow != nil {
		cmd.Flags().BoolVar(&detach, "detach", false, "do not wait until it is done")
	}
	of := func(name string) string { return cmd.Flag(name).Value.String() }
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := op.checkFlags(of); err != nil {
			return usageError{fmt.Errorf("host %s %s: %w", group, op.name, err)}
		}
		cfg, err := o.config(cmd, true)
		if err != nil {
			return err
		}
		if op.warn != nil && !sure {
			if err := o.ask(cmd.Context(), op.warn(args[0], of)); err != nil {
				return err
			}
		}
		params := []any{args[0]}
		for _, f := range op.flags {
			if !f.isSwitch {
				params = append(params, of(f.name))
			}
		}
		if err := o.operate(cmd, cfg, group, op, append(params, nullable(*reason))); err != nil || op.follow == nil || detach {
			return err
		}
		return o.watch(cmd.Context(), cfg, args[0], op.follow)
	}
	return cmd
}

// checkFlags finds numbers that are none here, before the database does.
func (op operation) checkFlags(of func(string) string) error {
	for _, f := range op.flags {
		if v := of(f.name); v != "" && (f.name == "shard" || f.name == "shards" || f.name == "pos") && strings.Trim(v, "0123456789") != "" {
			return fmt.Errorf("--%s %q: write a number", f.name, v)
		}
	}
	if op.check == nil {
		return nil
	}
	return op.check(of)
}

func (o *options) operate(cmd *cobra.Command, cfg Config, group string, op operation, params []any) error {
	ctx := cmd.Context()
	return o.withConn(ctx, cfg, "mill_operator", func(conn *pgx.Conn) error {
		var answer string
		if err := conn.QueryRow(ctx, op.sql, params...).Scan(&answer); err != nil {
			return err
		}
		if o.output == "json" {
			return printJSON(o.stdout, map[string]any{group: params[0], "action": op.name, "result": answer})
		}
		_, err := fmt.Fprintf(o.stdout, "%s: %s\n", params[0], answer)
		return err
	})
}

// ask explains and waits for a yes; without a terminal it wants --yes.
func (o *options) ask(ctx context.Context, what string) error {
	fmt.Fprintln(o.stderr, what)
	if !isTerminal(o.stdin) {
		return usageError{errors.New("nothing was done: say --yes")}
	}
	fmt.Fprint(o.stderr, "Do it? [y/N] ")
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(o.stdin).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case a := <-answer:
		if a == "y" || a == "yes" {
			return nil
		}
		return errAborted
	case <-ctx.Done():
		return ctx.Err()
	}
}

func nullable(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
