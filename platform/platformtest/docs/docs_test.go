package docs

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// tree is a program with one group and one command, which has a flag.
func tree() *cobra.Command {
	root := &cobra.Command{Use: "prog"}
	group := &cobra.Command{Use: "group", RunE: func(*cobra.Command, []string) error { return nil }, Args: cobra.ArbitraryArgs}
	for _, name := range []string{"one", "two"} {
		cmd := &cobra.Command{Use: name, Args: cobra.MaximumNArgs(1), Run: func(*cobra.Command, []string) {}}
		cmd.Flags().IntP("number", "n", 0, "")
		group.AddCommand(cmd)
	}
	root.AddCommand(group)
	return root
}

func TestCommandsAreFoundAndHeld(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, text string
		want       string // what is called, then what is wrong with the last one
	}{
		{"in the text", "Say `prog group one` or `two`, prog does.", "group one"},
		{"in a table", "| `prog group one\\|two NAME` |", "group one NAME, group two NAME"},
		{"in a block", "```\ncd x && A=1 prog group one -n 5 | less # prog group nosuch\n```", "group one -n 5"},
		{"in a block of shell, inside another", "```sh\npsql \"$(prog group two)\"\n```", "group two"},
		{"by go run", "```sh\ngo run ./cmd/prog group one >out\n```", "group one"},
		{"quotes hold together", "`prog group one 'a; b|c'`", "group one 'a; b|c'"},
		{"after another", "`prog group one; prog group two &`", "group one, group two"},
		{"another language is none", "```go\nprog group one\n```", ""},
		{"an argument of another is none", "`docker exec prog prog group`", ""},
		{"a placeholder is any value", "`prog group one -n N`, `prog group one --number …`", "group one -n N, group one --number …"},
		{"a flag alone", "`prog group one --number`", "group one --number"},
		{"a command that is not there", "`prog nosuch`", `nosuch: unknown command "nosuch" for "prog"`},
		{"one of a group", "`prog group three`", "group three: no command three of prog group"},
		{"a flag that is not there", "`prog group one --nosuch`", "group one --nosuch: unknown flag: --nosuch"},
		{"a value that cannot be", "`prog group one -n five`", `group one -n five: invalid argument "five"`},
		{"too many arguments", "`prog group one a b`", "group one a b: accepts at most 1 arg(s), received 2"},
	} {
		var got []string
		for _, line := range lines(tt.text) {
			for _, args := range commands("prog", line) {
				said := strings.Join(args, " ")
				if err := resolve(tree(), args); err != nil {
					said += ": " + err.Error()
				}
				got = append(got, said)
			}
		}
		if all := strings.Join(got, ", "); all != tt.want && !(strings.Contains(tt.want, ": ") && strings.HasPrefix(all, tt.want)) {
			t.Errorf("%s: %q shows %q, want %q", tt.name, tt.text, all, tt.want)
		}
	}
}

func TestAPackagesDocIsAPage(t *testing.T) {
	t.Parallel()
	got := lines(page("// Package x is made by `prog group\n// one`.\n//\n//\tprog group two  # that\n//\n// End.\npackage x\n"))
	if strings.Join(got, "|") != "prog group two  # that||prog group one" {
		t.Errorf("its code is %q", got)
	}
}
