package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/pgmill/pgmill/cmd/bench/internal/lab"
	"github.com/pgmill/pgmill/cmd/bench/internal/report"
	"github.com/pgmill/pgmill/platform/pg"
)

// scenarios is everything that can be run in this process.
var scenarios = slices.Concat(
	emitScenarios, advanceScenarios, subscribeScenarios, nothingScenarios,
	latencyScenarios, jobScenarios, crowdScenarios, pairScenarios, longScenarios, processScenarios, operateScenarios,
)

// known is every comparison that has goals.
func known() []report.Comparison { return slices.Concat(comparisons, soaks) }

func main() {
	pg.KeeperMain()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use: "bench", Short: "Measure the commit path against its peers",
		SilenceUsage: true, SilenceErrors: true,
	}
	root.AddCommand(runCommand(), allCommand(), quickCommand(), soakCommand(), listCommand(), tableCommand(), oneCommand())
	return root
}

func runCommand() *cobra.Command {
	var o options
	var base string
	cmd := &cobra.Command{
		Use: "run SPEC...", Short: "Run the given specs in turns; the first is the base", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, specs []string) error {
			c := report.Comparison{Base: base, Metric: report.MetricOf(known(), specs)}
			for _, s := range specs {
				c.Runs = append(c.Runs, report.Entry{Spec: s})
			}
			if base == "" {
				c.Base = c.Runs[0].Label()
			}
			return o.run(cmd.Context(), []report.Comparison{c})
		},
	}
	o.flags(cmd)
	cmd.Flags().StringVar(&base, "base", "", "label of the run that the others are divided by")
	return cmd
}

func allCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use: "all", Short: "Every comparison and its goals", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), comparisons) },
	}
	o.flags(cmd)
	return cmd
}

func quickCommand() *cobra.Command {
	o := options{rounds: 1, tenth: true}
	cmd := &cobra.Command{
		Use: "quick", Short: "Every comparison at a tenth of the size", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), comparisons) },
	}
	o.flags(cmd)
	return cmd
}

func soakCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use: "soak", Short: "The long form: a snapshot held open for twenty minutes", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), soaks) },
	}
	o.flags(cmd)
	return cmd
}

func listCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "Scenarios, their parameters, comparisons and goals", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			if err := lab.List(out, scenarios); err != nil {
				return err
			}
			for _, c := range known() {
				fmt.Fprintf(out, "\n%s (%d rounds)\n", c.Name, c.Rounds)
				for _, e := range c.Runs {
					fmt.Fprintf(out, "  %s\n", e.Spec)
				}
				for _, g := range c.Goals {
					fmt.Fprintf(out, "  goal  %s\n", g)
				}
			}
			return nil
		},
	}
}

func tableCommand() *cobra.Command {
	return &cobra.Command{
		Use: "table FILE...", Short: "Print the table of JSON lines", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			var lines []lab.Line
			for _, name := range files {
				f, err := os.Open(name)
				if err != nil {
					return err
				}
				some, err := lab.ReadLines(f)
				_ = f.Close()
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				lines = append(lines, some...)
			}
			return report.Table(cmd.OutOrStdout(), lines, known())
		},
	}
}

// oneCommand is what the other commands start for each run.
func oneCommand() *cobra.Command {
	return &cobra.Command{
		Use: "one SPEC", Short: "One run in this process; prints one JSON line", Args: cobra.ExactArgs(1), Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return lab.One(cmd.Context(), cmd.OutOrStdout(), scenarios, args[0])
		},
	}
}
