package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func (p *program) jobWatch() *cobra.Command {
	return &cobra.Command{Use: "watch ID", Short: "Follow a job to its end; exit code 1 if it does not succeed", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return p.watch(cmd.Context(), args[0]) }}
}

// watch prints each change of a job on the error output and at last the job.
func (p *program) watch(ctx context.Context, id string) error {
	last := ""
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		d, err := p.api.Job(ctx, id)
		if err != nil {
			return err
		}
		now := strings.TrimSpace(d.State + " " + d.Reason + " " + d.WaitingFor)
		if d.Progress != nil && d.State == "RUNNING" {
			now += cell(fmt.Sprintf(" %d %% %s", d.Progress.Percent, d.Progress.Message))
		}
		if now != last {
			last = now
			fmt.Fprintln(p.stderr, id, now)
		}
		if d.FinishedAt != 0 {
			if err := p.detail(d); err != nil || d.State == "SUCCEEDED" {
				return err
			}
			return errEnded
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// again calls f once, or each second until interrupted.
func (p *program) again(ctx context.Context, watch bool, f func() error) error {
	for {
		if err := f(); err != nil || !watch {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
			fmt.Fprintln(p.stdout)
		}
	}
}
