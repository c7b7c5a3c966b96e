package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pgmill/pgmill/platform/client"
)

func (p *program) dlqCommand() *cobra.Command {
	return group("dlq", "Show, retry and delete dead letters", p.dlqList(), p.dlqSweep(true), p.dlqSweep(false), p.dlqCounts())
}

func deadFlags(flags *pflag.FlagSet, f *client.DeadFilter) {
	flags.StringVar(&f.ReasonCode, "reason", "", "only that died of this")
	flags.StringVar(&f.Topic, "topic", "", "only of this topic")
	flags.StringVar(&f.Tenant, "tenant", "", "only of this tenant")
	flags.StringVar(&f.CreatedAfter, "after", "", "only that died after this time: s, ms, µs or ns since 1970")
	flags.StringVar(&f.CreatedBefore, "before", "", "only that died before this time")
}

func (p *program) dlqList() *cobra.Command {
	var f client.DeadFilter
	var limit int
	var cursor string
	var watch bool
	cmd := &cobra.Command{Use: "list", Short: "List dead letters, the latest first", Args: cobra.NoArgs}
	deadFlags(cmd.Flags(), &f)
	cmd.Flags().IntVar(&limit, "limit", 100, "how many on a page, at most 500")
	cmd.Flags().StringVar(&cursor, "cursor", "", "go on where a page ended")
	cmd.Flags().BoolVar(&watch, "watch", false, "again each second, until interrupted")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return p.again(cmd.Context(), watch, func() error {
			page, err := p.api.DeadLetters(cmd.Context(), f, limit, cursor)
			if err != nil {
				return err
			}
			if page.NextCursor != nil && p.output == "table" {
				fmt.Fprintf(p.stderr, "more: --cursor %s\n", *page.NextCursor)
			}
			return show(p, page, page.Items, []column[client.DeadLetter]{
				{"JOB", func(d client.DeadLetter) any { return d.JobID }}, {"TOPIC", func(d client.DeadLetter) any { return d.Topic }},
				{"STATE", func(d client.DeadLetter) any { return d.LastState }}, {"REASON", func(d client.DeadLetter) any { return d.ReasonCode }},
				{"ATTEMPTS", func(d client.DeadLetter) any { return d.Attempts }}, {"DIED", func(d client.DeadLetter) any { return d.CreatedAt }},
			})
		})
	}
	return cmd
}

// dlqSweep is retry or delete: of the ids, or of all that the filter names.
func (p *program) dlqSweep(retry bool) *cobra.Command {
	var f client.DeadFilter
	var all bool
	cmd := &cobra.Command{Use: "delete [ID…]", Short: "Delete dead letters; their jobs stay as they ended"}
	if retry {
		cmd = &cobra.Command{Use: "retry [ID…]", Short: "Submit dead letters again, as full clones"}
	}
	deadFlags(cmd.Flags(), &f)
	cmd.Flags().BoolVar(&all, "all", false, "every one that the filter leaves")
	cmd.RunE = func(cmd *cobra.Command, ids []string) error {
		if chosen := all || f != (client.DeadFilter{}); chosen == (len(ids) > 0) {
			return usage{errors.New("name ids, or what to choose by: --reason, --topic, --tenant, --after, --before or --all")}
		}
		done := []client.SweptJob{}
		for _, id := range ids {
			one, err := p.sweepOne(cmd, id, retry)
			if err != nil {
				return fmt.Errorf("%s: %w", id, err)
			} else if !retry || one.RetriedAs != "" {
				done = append(done, one)
			}
		}
		for more := len(ids) == 0; more; {
			some, err := p.api.SweepDead(cmd.Context(), retry, client.DeadSweep{DeadFilter: f, All: all})
			if err != nil {
				return err
			}
			done, more = append(done, some.Done...), some.More
			if n := len(some.Rejected); n > 0 {
				fmt.Fprintf(p.stderr, "pgmill: %d rejected, the first %s: live jobs of their unique keys are in the way\n", n, some.Rejected[0])
			}
			if more {
				fmt.Fprintf(p.stderr, "%d so far\n", len(done))
			}
		}
		return show(p, done, done, []column[client.SweptJob]{{"JOB", func(s client.SweptJob) any { return s.JobID }}, {"RETRIED AS", func(s client.SweptJob) any { return s.RetriedAs }}})
	}
	return cmd
}

func (p *program) sweepOne(cmd *cobra.Command, id string, retry bool) (client.SweptJob, error) {
	if !retry {
		return client.SweptJob{JobID: id}, p.api.DeleteDead(cmd.Context(), id)
	}
	r, err := p.api.RetryDead(cmd.Context(), id)
	if r.Outcome == "rejected" {
		fmt.Fprintf(p.stderr, "pgmill: %s is %s\n", id, outcome(r.Outcome, r.Reason, r.JobID))
		return client.SweptJob{JobID: id}, err
	}
	return client.SweptJob{JobID: id, RetriedAs: r.JobID}, err
}

func (p *program) dlqCounts() *cobra.Command {
	return &cobra.Command{Use: "counts", Short: "Count dead letters by reason and topic", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := p.api.DeadCounts(cmd.Context())
			if err != nil {
				return err
			}
			return show(p, all, all, []column[client.DeadCount]{{"REASON", func(c client.DeadCount) any { return c.ReasonCode }},
				{"TOPIC", func(c client.DeadCount) any { return c.Topic }}, {"COUNT", func(c client.DeadCount) any { return c.Count }}})
		}}
}
