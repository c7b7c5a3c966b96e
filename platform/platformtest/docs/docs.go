// Package docs holds the commands that the pages and the package docs show against the
// programs: one that names a command or a flag which is not there fails its test. Pages are
// README.md, deploy/README.md and those of the workers, package docs each doc.go. It imports
// cobra only, owns nothing, and is imported by tests only.
package docs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var (
	fence  = regexp.MustCompile("(?ms)^```(sh)?\n(.*?)^```$") // no other language
	fences = regexp.MustCompile("(?ms)^```.*?^```$")
	inline = regexp.MustCompile("`([^`\n]+)`")
	within = regexp.MustCompile(`\$\(([^()]*)\)`)
	word   = regexp.MustCompile(`;|(?:[^\s;'"]|'[^']*'|"[^"]*")+`)
	set    = regexp.MustCompile(`^[A-Z_]+=`)
	ends   = regexp.MustCompile(`^(&&|\|\|?|&|;|#.*|\d*[<>].*)$`)
	// placeholder is what stands for a value: NAME, "$NAME", N…, or dots.
	placeholder = regexp.MustCompile(`^["'$]*[A-Z][A-Z_|]*|…`)
)

// Check holds each command of a program that the files below top show against its tree
// of commands, and answers how many there are. tree answers a new one each time: parsing
// leaves values behind.
func Check(t testing.TB, top string, tree func() *cobra.Command) (shown int) {
	t.Helper()
	for path, text := range texts(t, top) {
		for _, line := range lines(text) {
			for _, args := range commands(tree().Name(), line) {
				shown++
				if err := resolve(tree(), args); err != nil {
					t.Errorf("%s shows %q: %v", path, line, err)
				}
			}
		}
	}
	return shown
}

// texts are the pages, and the comments of the package docs, by path.
func texts(t testing.TB, top string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != top:
			return fs.SkipDir
		case d.Name() != "README.md" && d.Name() != "doc.go":
			return nil
		}
		text, err := os.ReadFile(path)
		all[path] = string(text)
		if d.Name() == "doc.go" {
			all[path] = page(string(text))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// page is a package's doc as a page: a paragraph is one line, code is fenced.
func page(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		line, comment := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "//")
		switch code, isCode := strings.CutPrefix(line, "\t"); {
		case !comment:
		case isCode:
			b.WriteString("\n```\n" + code + "\n```\n")
		case line == "":
			b.WriteString("\n\n")
		default:
			b.WriteString(line)
		}
	}
	return b.String()
}

// lines are the lines of code of a page: of its blocks of shell, and in the text.
func lines(text string) (all []string) {
	for _, block := range fence.FindAllStringSubmatch(text, -1) {
		all = append(all, strings.Split(block[2], "\n")...)
	}
	for _, code := range inline.FindAllStringSubmatch(fences.ReplaceAllString(text, ""), -1) {
		all = append(all, strings.ReplaceAll(code[1], `\|`, "|")) // as tables have it
	}
	return all
}

// commands are the arguments of each call of the program in a line of shell; a|b in one
// stands for two.
func commands(program, line string) (all [][]string) {
	for _, inner := range within.FindAllStringSubmatch(line, -1) {
		all = append(all, commands(program, inner[1])...)
	}
	var words []string
	call := func() {
		for len(words) > 0 && set.MatchString(words[0]) {
			words = words[1:]
		}
		if len(words) > 2 && words[0] == "go" && words[1] == "run" {
			words = append([]string{filepath.Base(words[2])}, words[3:]...)
		}
		if len(words) > 0 && words[0] == program {
			all = append(all, each(words[1:])...)
		}
		words = nil
	}
	for _, w := range word.FindAllString(within.ReplaceAllString(line, "X"), -1) {
		if !ends.MatchString(w) {
			words = append(words, w)
			continue
		}
		call()
		if strings.HasPrefix(w, "#") {
			return all
		}
	}
	call()
	return all
}

// each is a command in all the ways that its words leave open.
func each(words []string) [][]string {
	all := [][]string{{}}
	for _, w := range words {
		ways := []string{w}
		if !strings.ContainsAny(w, `'"`) {
			ways = strings.Split(w, "|")
		}
		var more [][]string
		for _, begun := range all {
			for _, way := range ways {
				more = append(more, append(slices.Clone(begun), way))
			}
		}
		all = more
	}
	return all
}

// resolve finds the command and reads its flags; a placeholder may be any value. What is
// shown without its arguments is meant as a whole.
func resolve(root *cobra.Command, args []string) error {
	cmd, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	var bad *pflag.InvalidValueError
	var bare *pflag.ValueRequiredError
	switch err := cmd.ParseFlags(rest); {
	case errors.As(err, &bad) && placeholder.MatchString(bad.GetValue()), errors.As(err, &bare):
		return nil
	case err != nil:
		return err
	}
	switch rest := cmd.Flags().Args(); {
	case len(rest) == 0:
		return nil
	case cmd.HasSubCommands():
		return errors.New("no command " + rest[0] + " of " + cmd.CommandPath())
	default:
		return cmd.ValidateArgs(rest)
	}
}
