package main

import (
	"os"
	"time"

	"github.com/spf13/cobra"
)

// options are the flags of every command that measures.
type options struct {
	rounds  int           // 0: what the comparison says
	n, c    int           // 0: what the spec says
	tenth   bool          // a tenth of n, and of secs but not below ten
	only    string        // comparisons whose name matches
	file    string        // JSON lines are appended here
	form    string        // table or json
	noise   float64       // foreign CPU above which a run is repeated
	timeout time.Duration // of one run
	peers   string        // binary of cmd/bench/peers
	dir     string        // of the private Postgres
}

func (o *options) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.IntVarP(&o.rounds, "rounds", "r", o.rounds, "rounds; 0: as the comparison says")
	f.IntVarP(&o.n, "n", "n", 0, "operations of every run; 0: as the spec says")
	f.IntVarP(&o.c, "c", "c", 0, "clients of every run; 0: as the spec says")
	f.StringVar(&o.only, "only", "", "only comparisons whose name matches this regular expression")
	f.StringVar(&o.file, "out", "", "append JSON lines to this file")
	f.StringVarP(&o.form, "output", "o", "table", "what to print: table or json")
	f.Float64Var(&o.noise, "noise", 0.10, "repeat a run in which others took more than this share of the machine")
	f.DurationVar(&o.timeout, "timeout", 40*time.Minute, "of one run")
	f.StringVar(&o.peers, "peers", os.Getenv("BENCH_PEERS"), "binary of cmd/bench/peers, for scenarios that are there")
	f.StringVar(&o.dir, "dir", "/var/tmp/pgmill-bench", "directory of the private Postgres, when PG_DSN is unset")
}
