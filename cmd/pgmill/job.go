package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/pgmill/pgmill/platform/client"
)

var states = []string{"PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED", "TIMEOUT", "DENIED", "APPROVAL_REQUIRED"}

func (p *program) jobCommand() *cobra.Command {
	return group("job", "Submit, show, watch and cancel jobs",
		p.jobSubmit(), p.jobGet(), p.jobList(), p.jobWatch(), p.jobCancel(), p.jobLogs())
}

func (p *program) jobGet() *cobra.Command {
	var raw bool
	cmd := &cobra.Command{Use: "get ID", Aliases: []string{"status"}, Short: "Show one job with its input and output", Args: cobra.ExactArgs(1)}
	cmd.Flags().BoolVar(&raw, "raw", false, "only the output, as it is and whatever its size")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if raw {
			return p.copyOutput(cmd.Context(), args[0], p.stdout)
		}
		d, err := p.api.Job(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		if d.OutputPtr != "" && p.output == "json" {
			var b bytes.Buffer
			if err := p.copyOutput(cmd.Context(), args[0], &b); err != nil {
				return err
			}
			d.Output, d.Result = b.Bytes(), b.Bytes()
		}
		return p.detail(d)
	}
	return cmd
}

func (p *program) copyOutput(ctx context.Context, id string, to io.Writer) error {
	r, err := p.api.Output(ctx, id)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(to, r)
	return err
}

// detail prints one job, a line a field.
func (p *program) detail(d client.JobDetail) error {
	type line struct {
		name  string
		value any
	}
	progress := ""
	if d.Progress != nil {
		progress = fmt.Sprintf("%d %% %s", d.Progress.Percent, d.Progress.Message)
	}
	var output any = d.Output
	if d.OutputPtr != "" {
		output = fmt.Sprintf("%d bytes: pgmill job get %s --raw", d.OutputBytes, d.ID)
	}
	lines := []line{{"id", d.ID}, {"state", d.State}, {"topic", d.Topic}, {"tenant", d.Tenant}, {"priority", d.Priority}, {"attempts", d.Attempts}, {"reason", d.Reason},
		{"waiting for", d.WaitingFor}, {"worker", d.Worker}, {"progress", progress}, {"created", at(d.CreatedAt)}, {"due", at(d.RunAt)}, {"started", at(d.StartedAt)},
		{"finished", at(d.FinishedAt)}, {"trace", d.TraceID}, {"retry of", d.RetryOf}, {"submitted by", d.SubmittedBy}, {"input", d.Input}, {"output", output}}
	var some []line
	for _, l := range lines {
		if c := cell(l.value); c != "-" && c != "null" {
			some = append(some, l)
		}
	}
	return show(p, d, some, []column[line]{{"FIELD", func(l line) any { return l.name }}, {"VALUE", func(l line) any { return l.value }}})
}

func (p *program) jobList() *cobra.Command {
	var f client.JobFilter
	var all, watch bool
	cmd := &cobra.Command{Use: "list", Short: "List jobs, the last changed first", Args: cobra.NoArgs}
	flags := cmd.Flags()
	flags.StringVar(&f.State, "state", "", "only in this state")
	flags.StringVar(&f.Topic, "topic", "", "only of this topic")
	flags.StringVar(&f.Tenant, "tenant", "", "only of this tenant")
	flags.StringVar(&f.Team, "team", "", "only of this team")
	flags.StringVar(&f.TraceID, "trace", "", "only of this trace")
	flags.StringVar(&f.UpdatedAfter, "after", "", "only changed after this time: s, ms, µs or ns since 1970")
	flags.StringVar(&f.UpdatedBefore, "before", "", "only changed before this time")
	flags.IntVar(&f.Limit, "limit", 50, "how many on a page, at most 500")
	flags.StringVar(&f.Cursor, "cursor", "", "go on where a page ended")
	flags.BoolVar(&all, "all", false, "every page")
	flags.BoolVar(&watch, "watch", false, "again each second, until interrupted")
	complete(cmd, "state", states...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return p.again(cmd.Context(), watch, func() error {
			page, err := p.api.Jobs(cmd.Context(), f)
			for next := page; err == nil && all && next.NextCursor != nil; {
				more := f
				more.Cursor = *next.NextCursor
				next, err = p.api.Jobs(cmd.Context(), more)
				page.Items, page.NextCursor = append(page.Items, next.Items...), next.NextCursor
			}
			if err != nil {
				return err
			}
			err = show(p, page, page.Items, []column[client.Job]{
				{"ID", func(j client.Job) any { return j.ID }}, {"STATE", func(j client.Job) any { return j.State }}, {"TOPIC", func(j client.Job) any { return j.Topic }},
				{"TENANT", func(j client.Job) any { return j.Tenant }}, {"ATTEMPTS", func(j client.Job) any { return j.Attempts }},
				{"REASON", func(j client.Job) any { return j.Reason }}, {"UPDATED", func(j client.Job) any { return at(j.UpdatedAt) }},
			})
			if page.NextCursor != nil && p.output == "table" {
				fmt.Fprintf(p.stderr, "more: --cursor %s, or --all\n", *page.NextCursor)
			}
			return err
		})
	}
	return cmd
}

func (p *program) jobCancel() *cobra.Command {
	var reason string
	cmd := &cobra.Command{Use: "cancel ID…", Short: "Cancel jobs; what runs is told", Args: cobra.MinimumNArgs(1)}
	cmd.Flags().StringVar(&reason, "reason", "", "a code, such as ops.mistake")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var done []client.Cancelled
		for _, id := range args {
			c, err := p.api.Cancel(cmd.Context(), id, reason)
			if err != nil {
				return fmt.Errorf("%s: %w", id, err)
			}
			done = append(done, c)
		}
		return show(p, done, done, []column[client.Cancelled]{{"ID", func(c client.Cancelled) any { return c.ID }},
			{"STATE", func(c client.Cancelled) any { return c.State }}, {"NOTE", func(c client.Cancelled) any { return c.Reason }}})
	}
	return cmd
}

func (p *program) jobLogs() *cobra.Command {
	return &cobra.Command{Use: "logs ID", Short: "Show what became of each attempt", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := p.api.Job(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			all := d.AttemptList
			if d.Attempts > 0 && (len(all) == 0 || all[len(all)-1].Attempt != d.Attempts || d.FinishedAt != 0) {
				all = append(all, client.Attempt{Attempt: d.Attempts, Worker: d.Worker, StartedAt: d.StartedAt, EndedAt: d.FinishedAt, Reason: cmp.Or(d.Reason, d.State)})
			}
			return show(p, all, all, []column[client.Attempt]{{"ATTEMPT", func(a client.Attempt) any { return a.Attempt }}, {"WORKER", func(a client.Attempt) any { return a.Worker }},
				{"STARTED", func(a client.Attempt) any { return at(a.StartedAt) }}, {"ENDED", func(a client.Attempt) any { return at(a.EndedAt) }}, {"RESULT", func(a client.Attempt) any { return a.Reason }}})
		}}
}
