package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

// configCommand is pools or timeouts.
func (p *program) configCommand(name, short string) *cobra.Command {
	cmd := group(name, short, p.configGet(name), p.configSet(name))
	if name == "timeouts" {
		cmd.Long = short + `. A topic's count before what its step declares, and
reconciler's where both say nothing; what nothing speaks for runs 9000 seconds at most. reconciler may
have dispatch_timeout_seconds and scan_interval_seconds, as such documents do: they have no
effect, for no job is dispatched without running and the look is each second.`
	}
	return cmd
}

// configGet prints the document alone, so that it can be changed and set again; -o json
// is all that is known of it.
func (p *program) configGet(name string) *cobra.Command {
	return &cobra.Command{Use: "get", Short: "Show the document that counts, and whether a later one was refused", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := p.api.Document(cmd.Context(), name)
			if err != nil {
				return err
			}
			if p.output == "json" {
				return printJSON(p.stdout, d)
			}
			if d.Version > 0 {
				fmt.Fprintf(p.stderr, "version %d, set %s by %s\n", d.Version, cell(d.SetAt), cell(d.SetBy))
			}
			if r := d.Rejected; r != nil {
				fmt.Fprintf(p.stderr, "a later one was refused: %s, by %s, %s\n", cell(r.At), cell(r.By), cell(r.Reason))
			}
			return printJSON(p.stdout, d.Document)
		}}
}

func (p *program) configSet(name string) *cobra.Command {
	var file, reason string
	cmd := &cobra.Command{Use: "set -f FILE", Short: "Replace the document as a whole; one with faults changes nothing", Args: cobra.NoArgs}
	cmd.Flags().StringVarP(&file, "file", "f", "", "the document, JSON; - for standard input")
	cmd.Flags().StringVar(&reason, "reason", "", "a code for the audit, such as ops.change")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch file {
		case "":
			return usage{errors.New("say which document: -f FILE")}
		case "-":
		default:
			file = "@" + file
		}
		document, err := p.document(file)
		if err != nil {
			return err
		}
		done, err := p.api.SetDocument(cmd.Context(), name, document, reason)
		if err != nil {
			return err
		}
		if p.output == "json" {
			return printJSON(p.stdout, done)
		}
		_, err = fmt.Fprintf(p.stdout, "%s are version %d\n", name, done.Version)
		return err
	}
	return cmd
}
