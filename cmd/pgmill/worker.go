package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pgmill/pgmill/platform/client"
)

func (p *program) workerCommand() *cobra.Command {
	return group("worker", "Do jobs outside of a host: by a command, or by hand",
		p.workerList(), p.workerRun(), p.workerClaim(), p.workerHeartbeat(), p.workerReport("complete"), p.workerReport("fail"), p.workerReport("progress"), p.workerReport("release"))
}

// workerName is this worker's name unless one is given.
func workerName() string {
	name, err := os.Hostname()
	if err != nil {
		name = "worker"
	}
	return fmt.Sprintf("%.60s-%d", name, os.Getpid())
}

// claimFlags are what a worker takes jobs by.
func claimFlags(flags *pflag.FlagSet, c *client.Claim) {
	flags.StringSliceVar(&c.Topics, "topic", nil, "what it can do")
	flags.StringSliceVar(&c.Pools, "pools", nil, "the pools that it is of; without --topic it takes all topics that go to them")
	flags.StringToStringVar(&c.Labels, "labels", nil, "a=b,…; what placements may ask for")
	flags.StringVar(&c.Worker, "name", workerName(), "the worker's name")
}

func (p *program) workerList() *cobra.Command {
	var limit int
	var cursor string
	cmd := &cobra.Command{Use: "list", Short: "List the hosts and workers that live", Args: cobra.NoArgs}
	cmd.Flags().IntVar(&limit, "limit", 100, "how many on a page, at most 500")
	cmd.Flags().StringVar(&cursor, "cursor", "", "go on where a page ended")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		page, err := p.api.Workers(cmd.Context(), limit, cursor)
		if err != nil {
			return err
		}
		if page.NextCursor != nil && p.output == "table" {
			fmt.Fprintf(p.stderr, "more: --cursor %s\n", *page.NextCursor)
		}
		return show(p, page, page.Items, []column[client.Worker]{
			{"WORKER", func(w client.Worker) any { return w.ID }}, {"KIND", func(w client.Worker) any { return w.Kind }}, {"TENANT", func(w client.Worker) any { return w.Tenant }},
			{"POOLS", func(w client.Worker) any { return strings.Join(w.Pools, ",") }}, {"LABELS", func(w client.Worker) any { return labelText(w.Labels) }},
			{"TOPICS", func(w client.Worker) any { return strings.Join(w.Topics, ",") }}, {"JOBS", func(w client.Worker) any { return w.ActiveJobs }},
			{"SEEN", func(w client.Worker) any { return at(w.UpdatedAt) }},
		})
	}
	return cmd
}

// labelText is labels as a person writes them.
func labelText(labels map[string]string) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		all = append(all, name+"="+labels[name])
	}
	return strings.Join(all, ",")
}

func (p *program) workerClaim() *cobra.Command {
	var c client.Claim
	var n int64
	var lease, wait time.Duration
	cmd := &cobra.Command{Use: "claim --topic TOPIC | --pools POOL", Short: "Claim jobs; prints their ids, tokens and inputs", Args: cobra.NoArgs}
	flags := cmd.Flags()
	claimFlags(flags, &c)
	flags.Int64VarP(&n, "count", "n", 1, "how many at the most")
	flags.DurationVar(&lease, "lease", time.Minute, "how long a claim is good for without a heartbeat")
	flags.DurationVar(&wait, "wait", 0, "wait so long for a job, at most 30s")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		secs := int64(lease.Seconds())
		c.N, c.LeaseSecs, c.WaitMs = &n, &secs, wait.Milliseconds()
		got, err := p.api.Claim(cmd.Context(), c)
		if err != nil {
			return err
		}
		return show(p, got, got.Jobs, []column[client.ClaimedJob]{{"JOB", func(j client.ClaimedJob) any { return j.JobID }}, {"TOKEN", func(j client.ClaimedJob) any { return j.Token }},
			{"TOPIC", func(j client.ClaimedJob) any { return j.Topic }}, {"ATTEMPT", func(j client.ClaimedJob) any { return j.Attempt }}, {"INPUT", func(j client.ClaimedJob) any { return j.Input }}})
	}
	return cmd
}

func (p *program) workerHeartbeat() *cobra.Command {
	return &cobra.Command{Use: "heartbeat ID TOKEN", Short: "Renew a claim; says whether the work is to be dropped", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := p.api.Heartbeat(cmd.Context(), client.Heartbeat{IDs: args[:1], Tokens: args[1:]})
			if err != nil {
				return err
			}
			return show(p, r, r.Jobs, []column[client.RenewedJob]{{"JOB", func(j client.RenewedJob) any { return j.JobID }}, {"CANCELLED", func(j client.RenewedJob) any { return j.Cancelled }}})
		}}
}

// workerReport says something of one claimed job.
func (p *program) workerReport(what string) *cobra.Command {
	short := map[string]string{"complete": "End a claimed job well", "fail": "End an attempt of a claimed job", "progress": "Say how far a claimed job is", "release": "Give a claimed job back"}
	cmd := &cobra.Command{Use: what + " ID TOKEN", Short: short[what], Args: cobra.ExactArgs(2)}
	var output, message, reason string
	var final bool
	var percent int64
	switch what {
	case "complete":
		cmd.Flags().StringVar(&output, "output", "{}", "JSON, @FILE or - for standard input")
	case "fail":
		cmd.Flags().StringVar(&reason, "reason", "worker.failed", "a code")
		cmd.Flags().BoolVar(&final, "final", false, "do not try again")
	case "progress":
		cmd.Flags().Int64Var(&percent, "percent", 0, "0 to 100")
		cmd.Flags().StringVar(&message, "message", "", "at most 200 characters")
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r := client.Report{ID: args[0], Token: args[1]}
		switch what {
		case "complete":
			raw, err := p.document(output)
			if err != nil {
				return err
			}
			r.Output = raw
		case "fail":
			retry := !final
			r.Reason, r.Retry = reason, &retry
		case "progress":
			r.Percent, r.Message = &percent, message
		}
		done, err := p.api.Report(cmd.Context(), what, r)
		if err != nil {
			return err
		}
		return show(p, done, []client.Reported{done}, []column[client.Reported]{{"JOB", func(r client.Reported) any { return r.JobID }}, {"STATE", func(r client.Reported) any { return r.State }}})
	}
	return cmd
}

// output is what a command printed, as JSON: itself if it is JSON, else as a text.
func output(printed []byte) json.RawMessage {
	if json.Valid(printed) {
		return printed
	}
	if len(printed) == 0 {
		return json.RawMessage("{}")
	}
	raw, _ := json.Marshal(map[string]string{"stdout": string(printed)})
	return raw
}
