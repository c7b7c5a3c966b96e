package host

import (
	"fmt"

	"github.com/spf13/cobra"
)

// serveCommand is serve or worker. They differ by the API, which only serve has.
func serveCommand(o *options, kind string) *cobra.Command {
	cmd := &cobra.Command{Use: kind, Args: cobra.NoArgs}
	cmd.Short = map[string]string{"serve": "Run functions, with probes and the API", "worker": "Run functions, with probes"}[kind]
	addSettings(cmd.Flags(), false)
	demo := cmd.Flags().Bool("demo", false, "move a little money with pgbench meanwhile, for demo.branch_balance to follow")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := o.config(cmd, true)
		if err != nil {
			return err
		}
		p, err := newProcess(cfg, kind, o.reg, o.logger(cfg), func(w where) { o.welcome(cfg, kind, w) })
		if err != nil {
			return err
		}
		p.demo = *demo
		return p.Run(cmd.Context())
	}
	return cmd
}

// welcome tells a person where things are; programs have the probes and the log.
func (o *options) welcome(cfg Config, kind string, w where) {
	if cfg.Profile.Posture != postureLocal {
		return
	}
	url := fmt.Sprintf(`"$(%s)"`, o.command("url", cfg))
	what := "your DATABASE_URL"
	if w.private {
		what = "a private Postgres, which ends with the last host"
	}
	fmt.Fprintf(o.stdout, `pgmill %s, profile %s, %d functions

  database  %s
            psql %s
  progress  psql %s -c 'select * from mill.subscriptions'
%s  probes    http://%s/readyz /livez /metrics

Ctrl-C stops it.
`, Version(), cfg.Profile.Label(), w.functions, what, url, url, apiLine(cfg, kind, w), w.addr)
}

func apiLine(cfg Config, kind string, w where) string {
	switch {
	case kind != "serve":
		return ""
	case cfg.apiOpen():
		return fmt.Sprintf("  api       http://%s/api/v1/jobs, open to this machine\n", w.addr)
	case len(cfg.APIKeys) == 0:
		return "  api       closed: set PGMILL_API_KEYS\n"
	}
	return fmt.Sprintf("  api       http://%s/api/v1/jobs, with a key\n", w.addr)
}

// command is how this program is called again for the same database.
func (o *options) command(name string, cfg Config) string {
	line := o.self + " " + name
	if cfg.DataDir != "" {
		line += " --data-dir " + cfg.DataDir
	}
	return line
}
