package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"
)

// exitWarnings is doctor's: nothing is broken, something should not stay as it is.
const exitWarnings = 8

var (
	errBroken   = errors.New("something is broken: see DO above")
	errWarnings = errors.New("something should not stay as it is: see DO above")
)

func doctorCommand(o *options) *cobra.Command {
	return &cobra.Command{Use: "doctor", Short: "Examine database, grants, LISTEN, clock, partitions, hosts, and say what to do", Args: cobra.NoArgs,
		Long: "doctor looks at everything a host depends on and says what to do about each thing\nthat is not well. It changes nothing. Exit codes: 0 all well, 8 warnings, 1 broken,\n3 the database cannot be reached.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := o.config(cmd, true)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), 30*time.Second)
			defer cancel()
			found := programs(cfg)
			if worst(found) == nil {
				more, err := o.doctor(ctx, cfg)
				if err != nil {
					return err
				}
				found = append(found, more...)
			}
			if err := show(o, found, []column[finding]{
				{"CHECK", func(f finding) any { return f.Check }},
				{"STATUS", func(f finding) any { return f.Status }},
				{"DETAIL", func(f finding) any { return f.Detail }},
				{"DO", func(f finding) any { return f.Do }},
			}); err != nil {
				return err
			}
			return worst(found)
		}}
}

// worst is the worst of what was found, as the error whose exit code says so.
func worst(found []finding) error {
	has := func(status string) bool {
		return slices.ContainsFunc(found, func(f finding) bool { return f.Status == status })
	}
	switch {
	case has(statusBroken):
		return errBroken
	case has(statusWarning):
		return errWarnings
	}
	return nil
}

func (o *options) doctor(ctx context.Context, cfg Config) (found []finding, err error) {
	err = o.withConn(ctx, cfg, "mill_reader", func(db *pgx.Conn) error {
		config := db.Config()
		if cfg.ListenURL != "" {
			if config, err = pgx.ParseConfig(cfg.ListenURL); err != nil {
				return checkDSN(cfg.ListenURL)
			}
		}
		config.DefaultQueryExecMode = pgx.QueryExecModeExec
		direct, err := pgx.ConnectConfig(ctx, config)
		if err != nil {
			return fmt.Errorf("the listen URL: %w", err)
		}
		defer direct.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing is lost
		found = (&doctor{cfg: cfg, modules: o.reg.Modules(), db: db, direct: direct}).examine(ctx)
		return nil
	})
	return found, err
}

// sqlstateOf is all that is said of an error that the database gave.
func sqlstateOf(err error) string {
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		return "SQLSTATE " + pe.Code
	}
	return "no answer"
}
