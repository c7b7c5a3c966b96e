package host

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func rootCommand(o *options) *cobra.Command {
	root := &cobra.Command{
		Use:           "host",
		Short:         "Runs registered functions on Postgres",
		Long:          "host runs registered functions on Postgres: events, cursors and claims are in the\ndatabase, and any number of hosts share the work. `host serve` needs nothing: without\nDATABASE_URL the profile local starts a private Postgres.",
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if o.output != "table" && o.output != "json" {
				return fmt.Errorf("-o %q: write table or json", o.output)
			}
			o.parsed = true
			return nil
		},
	}
	root.SetIn(o.stdin)
	root.SetOut(o.stdout)
	root.SetErr(o.stderr)
	root.SetGlobalNormalizationFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "deployment" { // the same thing by its document's name
			name = "profile"
		}
		return pflag.NormalizedName(name)
	})
	addSettings(root.PersistentFlags(), true)
	root.PersistentFlags().StringVarP(&o.output, "output", "o", "table", "table for people, json for programs")
	root.AddCommand(
		serveCommand(o, "serve"), serveCommand(o, "worker"),
		migrateCommand(o), functionsCommand(o), subscriptionCommand(o), scheduleCommand(o), cleanupCommand(o), eventsCommand(o),
		urlCommand(o), readyCommand(o), doctorCommand(o), demoCommand(o), versionCommand(o),
	)
	return root
}

// addSettings gives a command the flags of the common settings, or of the others,
// which are for what runs a host. Their defaults are not the flags' own: those
// would hide the environment.
func addSettings(flags *pflag.FlagSet, common bool) {
	for _, s := range settings {
		if s.common != common {
			continue
		}
		usage := fmt.Sprintf("%s [%s]", s.usage, s.env)
		if s.preset != "" {
			usage += " (default " + s.preset + ")"
		}
		f := flags.VarPF(&settingFlag{kind: s.kind}, s.flag, "", usage)
		if s.kind.isSwitch {
			f.NoOptDefVal = "true"
		}
	}
}

// settingFlag keeps a flag's text: it is parsed with all other settings, so that
// all faults are told at once. A list may be given in pieces.
type settingFlag struct {
	kind kind
	text string
}

func (f *settingFlag) String() string { return f.text }
func (f *settingFlag) Type() string   { return f.kind.name }
func (f *settingFlag) Set(text string) error {
	if f.kind.isList && f.text != "" {
		text = f.text + "," + text
	}
	f.text = text
	return nil
}

// group is a command that only holds others.
func group(use, short string, members ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var names []string
		for _, m := range members {
			names = append(names, m.Name())
		}
		if len(args) == 0 {
			return usageError{fmt.Errorf("host %s: say which: %v", use, names)}
		}
		return usageError{fmt.Errorf("host %s: no command %q%s", use, args[0], didYouMean(args[0], names))}
	}
	cmd.AddCommand(members...)
	return cmd
}
