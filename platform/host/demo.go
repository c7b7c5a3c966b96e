package host

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pgmill/pgmill/platform/pg"
)

// demoCommand is `host demo`: real traffic, and the proof that each of its events had
// its effect once.
func demoCommand(o *options) *cobra.Command {
	var a demoArgs
	cmd := &cobra.Command{Use: "demo", Short: "Let pgbench move money, and compare every balance with pgbench's own", Args: cobra.NoArgs,
		Long: `demo lets the stock pgbench move money in tables of its own (schema ` + demoSchema + `). A
trigger emits one event a transfer; the subscription ` + demoFunction + ` adds each
delta to the table of that name. When the time is over and nothing waits any more, every
balance must equal pgbench's own: the exit code is 1 if one does not.

A further run adds to what is there. If no live host has the subscription, this process
runs it meanwhile. To remove the demo: drop schema ` + demoSchema + `, demo cascade`}
	cmd.Flags().IntVar(&a.seconds, "seconds", 20, "how long money is moved")
	cmd.Flags().IntVar(&a.clients, "clients", 8, "how many of pgbench's clients move it")
	cmd.Flags().IntVar(&a.scale, "scale", 0, "at least so many branches, not below --clients (0: as many as clients)")
	cmd.Flags().BoolVar(&a.anew, "init", false, "make pgbench's tables anew and start from zero")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := a.check(); err != nil {
			return usageError{err}
		}
		ctx := cmd.Context()
		cfg, err := o.config(cmd, true)
		if err != nil {
			return err
		}
		cfg, done, err := o.open(ctx, cfg, 0)
		if err != nil {
			return err
		}
		defer done()
		log := o.logger(cfg)
		if cfg.Migrate {
			if _, err := pg.Migrate(ctx, cfg.Direct(), log, o.reg.Modules()...); err != nil {
				return err
			}
		}
		p := newProgress(o.stderr)
		defer p.end()
		report, err := demoOn(ctx, cfg, a, o.reg, log, p)
		if err != nil {
			return err
		}
		if o.output == "json" {
			err = printJSON(o.stdout, report)
		} else {
			err = report.write(o.stdout)
		}
		if err == nil && !report.Equal {
			err = fmt.Errorf("%d of %d balances differ from pgbench's", report.Different, len(report.Branches))
		}
		return err
	}
	return cmd
}
