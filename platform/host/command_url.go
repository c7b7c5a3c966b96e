package host

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

// urlLinger is how long a private Postgres that `host url` had to start stays for
// who asked: there may be no other user of it.
const urlLinger = 10 * time.Minute

func urlCommand(o *options) *cobra.Command {
	return &cobra.Command{Use: "url", Short: `Print the database's DSN: psql "$(host url)"`, Args: cobra.NoArgs,
		Long: "url prints the DSN of the configured database, or of the private Postgres of this\ndirectory. If that was not running it is started, for ten minutes or\nuntil the last host that uses it is gone; the error output says so.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := o.config(cmd, true)
			if err != nil {
				return err
			}
			cfg, done, err := o.open(cmd.Context(), cfg, urlLinger)
			if err != nil {
				return err
			}
			defer done()
			if o.output == "json" {
				return printJSON(o.stdout, map[string]string{"url": cfg.Database})
			}
			_, err = fmt.Fprintln(o.stdout, cfg.Database)
			return err
		}}
}
