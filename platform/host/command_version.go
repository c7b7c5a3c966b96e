package host

import (
	"fmt"
	goruntime "runtime"

	"github.com/spf13/cobra"
)

func versionCommand(o *options) *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if o.output == "json" {
				return printJSON(o.stdout, map[string]string{"version": Version(), "go": goruntime.Version()})
			}
			_, err := fmt.Fprintf(o.stdout, "pgmill %s %s\n", Version(), goruntime.Version())
			return err
		}}
}
