package host

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/pgmill/pgmill/platform"
)

// functionsCommand lists what is in this build; which hosts have it is in
// mill.functions.
func functionsCommand(o *options) *cobra.Command {
	return &cobra.Command{Use: "functions", Short: "List the functions in this build", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			var all []platform.Description
			for _, f := range o.reg.Functions() {
				all = append(all, f.Describe())
			}
			return show(o, all, []column[platform.Description]{
				{"NAME", func(d platform.Description) any { return d.Name }},
				{"KIND", func(d platform.Description) any { return d.Kind }},
				{"MODULE", func(d platform.Description) any { return d.Module }},
				{"LISTENS", func(d platform.Description) any { return strings.Join(d.Listens, " ") }},
			})
		}}
}
