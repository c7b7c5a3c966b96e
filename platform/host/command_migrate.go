package host

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/pgmill/pgmill/platform/pg"
)

func migrateCommand(o *options) *cobra.Command {
	up := &cobra.Command{Use: "up", Short: "Bring the database up to this build", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.migration(cmd, func(cfg Config) ([]pg.Change, error) {
				done, err := pg.Migrate(cmd.Context(), cfg.Direct(), o.logger(cfg), o.reg.Modules()...)
				if err == nil && len(done) == 0 && o.output == "table" {
					fmt.Fprintln(o.stdout, "nothing to do: the database is up to this build")
				}
				return done, err
			})
		}}
	status := &cobra.Command{Use: "status", Short: "Show what is applied; exit 4 if something is not", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var pending error
			err := o.migration(cmd, func(cfg Config) ([]pg.Change, error) {
				plan, err := pg.Plan(cmd.Context(), cfg.Direct(), o.logger(cfg), o.reg.Modules()...)
				if slices.ContainsFunc(plan, func(c pg.Change) bool { return !c.Applied }) {
					pending = errPending
				}
				return plan, err
			})
			if err != nil {
				return err
			}
			return pending
		}}
	plan := &cobra.Command{Use: "plan", Short: "Show what `up` would do", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.migration(cmd, func(cfg Config) ([]pg.Change, error) {
				plan, err := pg.Plan(cmd.Context(), cfg.Direct(), o.logger(cfg), o.reg.Modules()...)
				plan = slices.DeleteFunc(plan, func(c pg.Change) bool { return c.Applied })
				if err == nil && len(plan) == 0 && o.output == "table" {
					fmt.Fprintln(o.stdout, "nothing to do: the database is up to this build")
				}
				return plan, err
			})
		}}
	return group("migrate", "Migrate the database", up, status, plan)
}

// migration runs one of the three on the configured database, and shows the changes;
// those made before an error, too.
func (o *options) migration(cmd *cobra.Command, run func(Config) ([]pg.Change, error)) error {
	cfg, err := o.config(cmd, true)
	if err != nil {
		return err
	}
	cfg, done, err := o.open(cmd.Context(), cfg, 0)
	if err != nil {
		return err
	}
	defer done()
	changes, err := run(cfg)
	if len(changes) > 0 || err == nil && o.output == "json" {
		if err := show(o, changes, migrationColumns); err != nil {
			return err
		}
	}
	return err
}

var migrationColumns = []column[pg.Change]{
	{"PART", func(c pg.Change) any { return c.Part }},
	{"VERSION", func(c pg.Change) any { return c.Version }},
	{"NAME", func(c pg.Change) any { return c.Name }},
	{"APPLIED", func(c pg.Change) any { return yes(c.Applied) }},
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
