package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pgmill/pgmill/platform/client"
)

func (p *program) jobSubmit() *cobra.Command {
	var s client.Submit
	var prompt, input string
	var delay, deadline, runtime time.Duration
	var attempts int64
	var wait bool
	cmd := &cobra.Command{Use: "submit --topic TOPIC (--input JSON | --prompt TEXT)", Short: "Submit a job", Args: cobra.NoArgs,
		Example: `  pgmill job submit --topic job.demo.echo --input '{"a": 1}' --wait
  pgmill job submit --topic job.demo.echo --input @order.json   # or - for standard input`}
	flags := cmd.Flags()
	flags.StringVar(&s.Topic, "topic", "", "what kind of work (default job.default)")
	flags.StringVar(&input, "input", "", "a JSON object, @FILE or - for standard input")
	flags.StringVar(&prompt, "prompt", "", "instead of an input")
	flags.StringVar(&s.Priority, "priority", "", "critical, interactive or batch")
	flags.StringVar(&s.TenantID, "tenant", "", "whose job (default the key's)")
	flags.StringVar(&s.IdempotencyKey, "idempotency-key", "", "a repeated submit answers the first job")
	flags.StringVar(&s.Key, "key", "", "jobs of one key share their topic's limit")
	flags.StringVar(&s.UniqueKey, "unique-key", "", "one job a key at a time")
	flags.StringVar(&s.TraceID, "trace", "", "the trace it belongs to")
	flags.StringToStringVar(&s.Labels, "labels", nil, "a=b,…; shown")
	flags.StringToStringVar(&s.Placement, "placement", nil, "a=b,…; what the worker must have")
	flags.StringSliceVar(&s.Requires, "requires", nil, "what the pool must offer")
	flags.StringSliceVar(&s.RiskTags, "risk-tags", nil, "what the policy looks at")
	flags.StringVar(&s.Capability, "capability", "", "what the policy looks at")
	flags.StringVar(&s.PackID, "pack-id", "", "the pack it belongs to")
	flags.StringVar(&s.ActorID, "actor-id", "", "who acts")
	flags.StringVar(&s.ActorType, "actor-type", "", "human or service")
	flags.DurationVar(&delay, "delay", 0, "start so long from now")
	flags.DurationVar(&deadline, "deadline", 0, "end so long from now, whatever it is at")
	flags.DurationVar(&runtime, "max-runtime", 0, "of one attempt")
	flags.Int64Var(&attempts, "max-attempts", 0, "1 to 100 (default its topic's)")
	flags.BoolVar(&wait, "wait", false, "watch it to its end; the exit code says whether it succeeded")
	complete(cmd, "priority", "critical", "interactive", "batch")
	complete(cmd, "actor-type", "human", "service")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if input == "" && prompt == "" {
			input = "{}"
		}
		if prompt != "" {
			s.Prompt = &prompt
		}
		raw, err := p.document(input)
		if err != nil {
			return err
		}
		s.Input = raw
		for into, d := range map[**int64]time.Duration{&s.DelayMs: delay, &s.DeadlineMs: deadline, &s.MaxRuntimeMs: runtime} {
			if d != 0 {
				ms := d.Milliseconds()
				*into = &ms
			}
		}
		if attempts != 0 {
			s.MaxAttempts = &attempts
		}
		done, err := p.api.Submit(cmd.Context(), s)
		if err != nil {
			return err
		}
		for _, note := range []string{outcome(done.Outcome, done.Reason, done.JobID), done.Warning} {
			if note != "" {
				fmt.Fprintln(p.stderr, "pgmill:", note)
			}
		}
		if wait {
			return p.watch(cmd.Context(), done.JobID)
		}
		if p.output == "json" {
			return printJSON(p.stdout, done)
		}
		_, err = fmt.Fprintln(p.stdout, done.JobID)
		return err
	}
	return cmd
}

// outcome is what a person is told whose submit made no job; "" if it did.
func outcome(outcome, reason, job string) string {
	switch outcome {
	case "merged":
		return fmt.Sprintf("merged into %s, which was there (%s)", job, reason)
	case "rejected":
		return fmt.Sprintf("rejected: %s is in the way until it has ended (%s)", job, reason)
	}
	return ""
}

// document is a JSON text given as itself, @FILE or -; "" is none.
func (p *program) document(text string) (json.RawMessage, error) {
	raw := []byte(text)
	var err error
	if text == "-" {
		raw, err = io.ReadAll(p.stdin)
	} else if path, ok := strings.CutPrefix(text, "@"); ok {
		raw, err = readFile(path)
	}
	switch {
	case err != nil:
		return nil, err
	case text == "":
		return nil, nil
	case !json.Valid(raw):
		return nil, usage{errors.New("this is no JSON: write an object such as '{\"a\": 1}', @FILE or -")}
	}
	return raw, nil
}
