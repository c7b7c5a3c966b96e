package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pgmill/pgmill/platform/client"
)

// program is what all commands share.
type program struct {
	env            func(string) string
	stdin          io.Reader
	stdout, stderr io.Writer

	url, keyFile, output string
	understood           bool // the command line was
	api                  *client.Client
}

func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "pgmill",
		Short: "Submits, shows and does jobs by a host's HTTP API",
		Long: `pgmill calls the HTTP API of a host (host serve).

PGMILL_URL says where it is (http://127.0.0.1:8081), PGMILL_API_KEY is the key. Exit codes:
0 ok, 1 failed, 2 usage or refused as wrong, 3 unreachable, 5 not found, 6 conflict, 7 denied.`,
		SilenceErrors: true, SilenceUsage: true,
		PersistentPreRunE: func(*cobra.Command, []string) error { return p.connect() },
	}
	flags := root.PersistentFlags()
	flags.StringVar(&p.url, "url", "", "where the host is [PGMILL_URL] (default http://127.0.0.1:8081)")
	flags.StringVar(&p.keyFile, "key-file", "", "a file that holds the API key [PGMILL_API_KEY_FILE]; or PGMILL_API_KEY")
	flags.StringVarP(&p.output, "output", "o", "table", "table for people, json for programs")
	complete(root, "output", "table", "json")
	root.AddCommand(p.jobCommand(), p.dlqCommand(), p.workerCommand(),
		p.configCommand("pools", "Show and set which topics go to which pools"), p.configCommand("timeouts", "Show and set how long jobs may run and wait"))
	return root
}

// connect prepares the client; nothing is sent yet.
func (p *program) connect() error {
	if p.output != "table" && p.output != "json" {
		return fmt.Errorf("-o %q: write table or json", p.output)
	}
	key := p.env("PGMILL_API_KEY")
	if file := cmp.Or(p.keyFile, p.env("PGMILL_API_KEY_FILE")); file != "" && (p.keyFile != "" || key == "") {
		text, err := readFile(file)
		if err != nil {
			return err
		}
		key = strings.TrimSpace(string(text))
	}
	p.api = &client.Client{URL: cmp.Or(p.url, p.env("PGMILL_URL")), Key: key}
	p.understood = true
	return nil
}

// complete gives a flag its words for the shell.
func complete(cmd *cobra.Command, flag string, words ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// group is a command that only holds others.
func group(use, short string, members ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return usage{fmt.Errorf("say which; see %s --help", cmd.CommandPath())}
	}}
	cmd.AddCommand(members...)
	return cmd
}
