package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/pgmill/pgmill/cmd/bench/internal/lab"
)

var scenarios = slices.Concat(watermillScenarios, asynqScenarios, rabbitScenarios)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 1 && args[0] == "list":
		return lab.List(os.Stdout, scenarios)
	case len(args) == 1:
		return lab.One(ctx, os.Stdout, scenarios, args[0])
	}
	return fmt.Errorf("usage: peers SPEC | peers list")
}

// ownServices counts the processes of BENCH_PIDS, separated by commas, as part of
// the run.
func ownServices(r *lab.Run) {
	for text := range strings.SplitSeq(os.Getenv("BENCH_PIDS"), ",") {
		if pid, err := strconv.Atoi(text); err == nil {
			r.Own(pid)
		}
	}
}
