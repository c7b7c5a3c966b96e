package platform_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/pgmill/pgmill/"

// rows are the import directions of the design: a package imports lower rows only.
// A name that ends in / is a tree. bottom is imported by anyone.
var rows = [][]string{
	{"internal/db", "internal/failpoint", "migrations", "sql", "deploy"},
	{"", "policy", "wakeup", "client"},
	{"outbox", "pg", "internal/claim", "internal/lease"},
	{"workflow", "job", "subscription", "schedule", "cleanup", "catalog", "blob", "coord"},
	{"api", "rabbitmq", "redis"},
	{"host", "platformtest", "platformtest/pgtest", "platformtest/pgbouncer", "platformtest/fault", "platformtest/docs"},
	{"cmd/", "functions/"},
}

// arrows are the imports inside a row; platformtest starts hosts.
var arrows = map[string][]string{
	"internal/claim":      {"internal/lease"},
	"workflow":            {"job"},
	"platformtest":        {"host", "platformtest/pgtest"},
	"platformtest/pgtest": {"platformtest/pgbouncer"},
	"platformtest/fault":  {"platformtest/pgbouncer", "platformtest/pgtest"},
	"cmd/host":            {"functions/"},
	"cmd/bench":           {"cmd/bench/internal/"},
	"cmd/bench/internal":  {"cmd/bench/internal/"},
}

// goPackage is what go list says of a package of the module.
type goPackage struct {
	ImportPath, Dir, Name, Doc string
	GoFiles, Imports           []string
}

func (p goPackage) short() string { return short(p.ImportPath) }

// short is a package by its name in rows: platform's own without the prefix.
func short(path string) string {
	path = strings.TrimPrefix(path, module)
	if path == "platform" {
		return ""
	}
	return strings.TrimPrefix(path, "platform/")
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func packages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Dir,Name,Doc,GoFiles,Imports", "./...")
	cmd.Dir = root(t)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v: %s", err, &errs)
	}
	var all []goPackage
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		if len(p.GoFiles) > 0 { // or it is tests only
			all = append(all, p)
		}
	}
}

func row(name string) int {
	return slices.IndexFunc(rows, func(names []string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return covers(n, name) })
	})
}

func covers(n, name string) bool {
	return n == name || n != "" && strings.HasSuffix(n, "/") && strings.HasPrefix(name+"/", n)
}

// badImport says why one package of ours may not import another; "" if it may.
func badImport(from, to string) string {
	f, t := row(from), row(to)
	switch {
	case f < 0:
		return "the importing package is in no row"
	case t < 0:
		return "the imported package is in no row"
	case strings.HasPrefix(from, "functions/"):
		if to == "" || strings.HasPrefix(to, "functions/") {
			return ""
		}
		return "functions import platform and each other's event types only"
	case from == "cmd/pgmill":
		if to == "client" {
			return ""
		}
		return "the client program imports client only"
	case from == "" || from == "policy" || from == "wakeup" || from == "client":
		return "it imports nothing of the module"
	case slices.ContainsFunc(arrows[from], func(n string) bool { return covers(n, to) }) || strings.HasPrefix(from, "cmd/bench/") && strings.HasPrefix(to, "cmd/bench/"):
		return ""
	case t < f:
		return ""
	default:
		return fmt.Sprintf("row %d imports row %d", f-1, t-1)
	}
}

func TestImportsPointDown(t *testing.T) {
	t.Parallel()
	var seen int
	for _, p := range packages(t) {
		for _, i := range p.Imports {
			if !strings.HasPrefix(i+"/", module) {
				if strings.HasPrefix(p.short(), "functions/") && strings.Contains(i, ".") && !strings.HasPrefix(i, "github.com/jackc/pgx/v5") {
					t.Errorf("%s imports %s: functions import the standard library, platform and pgx only", p.short(), i)
				}
				continue
			}
			seen++
			if why := badImport(p.short(), short(i)); why != "" {
				t.Errorf("%s imports %s: %s", p.short(), short(i), why)
			}
		}
		if row(p.short()) < 0 {
			t.Errorf("%s is in no row of the design", p.short())
		}
	}
	if seen < 20 {
		t.Errorf("only %d imports seen", seen)
	}
}

// The rule itself: what must be refused is.
func TestImportRule(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		from, to string
		ok       bool
	}{
		{"host", "subscription", true},
		{"subscription", "outbox", true},
		{"internal/claim", "internal/lease", true},
		{"internal/lease", "internal/claim", false},
		{"outbox", "pg", false},
		{"job", "subscription", false},
		{"workflow", "job", true},
		{"job", "workflow", false},
		{"subscription", "host", false},
		{"pg", "migrations", true},
		{"", "internal/db", false},
		{"wakeup", "outbox", false},
		{"functions/demo", "", true},
		{"functions/demo", "functions/orders", true},
		{"functions/demo", "pg", false},
		{"functions/demo", "internal/db", false},
		{"cmd/host", "functions/demo", true},
		{"cmd/pgmill", "client", true},
		{"cmd/pgmill", "host", false},
		{"platformtest", "host", true},
		{"host", "platformtest", false},
		{"nosuch", "", false},
		{"host", "nosuch", false},
	} {
		if why := badImport(tt.from, tt.to); (why == "") != tt.ok {
			t.Errorf("badImport(%q, %q) = %q; want allowed %v", tt.from, tt.to, why, tt.ok)
		}
	}
}

func TestTopLevelIsFixed(t *testing.T) {
	t.Parallel()
	entries, err := os.ReadDir(root(t))
	if err != nil {
		t.Fatal(err)
	}
	fixed := strings.Fields("functions platform sql migrations cmd deploy go.mod go.sum tools.mod tools.sum Makefile README.md LICENSE CHANGELOG.md")
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && !slices.Contains(fixed, e.Name()) {
			t.Errorf("%s does not belong at the top level", e.Name())
		}
	}
}

// A package says what it is for in its doc.go; one of a single file (a main, an
// embed.go) in that.
func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		if strings.HasPrefix(p.short(), "cmd/tmp") { // not to be kept
			continue
		}
		var written []string
		for _, f := range p.GoFiles {
			if !generated(t, filepath.Join(p.Dir, f)) {
				written = append(written, f)
			}
		}
		if len(written) == 0 {
			continue
		}
		if len(written) > 1 && !slices.Contains(written, "doc.go") {
			t.Errorf("%s has no doc.go", p.ImportPath)
			continue
		}
		home := "doc.go"
		if len(written) == 1 {
			home = written[0]
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, home), nil, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			t.Fatal(err)
		}
		begins := "Package " + p.Name + " "
		if p.Name == "main" {
			begins = "Command " + filepath.Base(p.Dir) + " "
		}
		first, _, _ := strings.Cut(f.Doc.Text(), ".")
		if rest, ok := strings.CutPrefix(first, begins); !ok || len(strings.Fields(rest)) < 3 {
			t.Errorf("%s/%s begins %q; want %q and what it is for", p.ImportPath, home, first, begins)
		}
	}
}

func generated(t *testing.T, path string) bool {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return ast.IsGenerated(parsed(t, path, text))
}

func parsed(t *testing.T, path string, text []byte) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// sources calls f for each source file of ours that ends in one of the suffixes; path is
// relative to the root.
func sources(t *testing.T, f func(path string, text []byte), suffixes ...string) {
	t.Helper()
	top := root(t)
	for _, tree := range []string{"cmd", "deploy", "functions", "migrations", "platform", "sql"} {
		err := filepath.WalkDir(filepath.Join(top, tree), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(path, s) }) {
				return err
			}
			text, err := os.ReadFile(path)
			if errors.Is(err, fs.ErrNotExist) { // somebody's editor
				return nil
			}
			rel, _ := filepath.Rel(top, path)
			f(rel, text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestNoFileIsTooLong(t *testing.T) {
	t.Parallel()
	sources(t, func(path string, text []byte) {
		if n := bytes.Count(text, []byte("\n")); n > 500 && !(strings.HasSuffix(path, ".go") && ast.IsGenerated(parsed(t, path, text))) {
			t.Errorf("%s has %d lines; at most 500", path, n)
		}
	}, ".go", ".sql", ".sh")
}

// mayLog are the files that may write or make loggers by themselves: the redacting
// handler, and what wraps or replaces a logger that was given.
var mayLog = map[string]string{
	"platform/host/log.go":          "the redacting logger is made here",
	"platform/host/main.go":         "makes it the default one",
	"platform/pg/private_keeper.go": "another process; its stderr is the server's log file",
	"platform/pg/private.go":        "programs that bring no logger; the host brings its own",
	"platform/pg/migrate.go":        "wraps the logger it is given",
	"platform/platformtest/t.go":    "what an Example prints",
	"platform/host/worker.go":       "wraps the logger it is given",
}

var sinks = regexp.MustCompile(`^(fmt\.Print(|f|ln)|log\.\w+|slog\.(Default|SetDefault|NewTextHandler|NewJSONHandler|Debug|Info|Warn|Error|Log)(Context)?|tint\.NewHandler|os\.Std(out|err)|println|print)$`)

// F73: nothing is said but through the logger that the host makes, which redacts.
func TestOneWayToLog(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	sources(t, func(path string, text []byte) {
		if strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "cmd/") || strings.HasPrefix(path, "deploy/artifacts/") {
			return
		}
		file := parsed(t, path, text)
		ownLog := !slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"log"` })
		ast.Inspect(file, func(n ast.Node) bool {
			name := dotted(n)
			if strings.HasPrefix(name, "log.") && ownLog { // a variable of that name
				return true
			}
			if call, ok := n.(*ast.CallExpr); ok && dotted(call.Fun) == "slog.New" && dotted(call.Args[0]) != "slog.DiscardHandler" {
				name = "slog.New"
			} else if !sinks.MatchString(name) {
				return true
			}
			found[path] = true
			if mayLog[path] == "" {
				t.Errorf("%s uses %s: log through the logger that the host made", path, name)
			}
			return true
		})
	}, ".go")
	for path := range maps.Keys(mayLog) {
		if !found[path] {
			t.Errorf("%s needs no exception any more", path)
		}
	}
}

// dotted is pkg.Name, or a bare name, of an expression; "" for any other.
func dotted(n ast.Node) string {
	switch n := n.(type) {
	case *ast.SelectorExpr:
		if x, ok := n.X.(*ast.Ident); ok {
			return x.Name + "." + n.Sel.Name
		}
	case *ast.Ident:
		return n.Name
	}
	return ""
}

// readsClock are the files that ask this machine for the time, each to measure how
// long something takes and for nothing else.
var readsClock = strings.Fields(`
	platform/host/command_watch.go platform/host/doctor.go platform/host/demo_run.go platform/host/demo_lag.go platform/host/demo_traffic.go platform/host/worker.go
	platform/internal/lease/lease.go
	platform/pg/code.go platform/pg/private_keeper.go platform/pg/private_data.go
	platform/subscription/batch.go platform/subscription/call.go platform/subscription/errand.go platform/subscription/holder.go
	platform/wakeup/bell.go platform/wakeup/loop.go
	functions/demo/steps.go platform/api/body.go platform/internal/claim/river.go platform/job/engine.go`)

// statements are the calls whose arguments reach the database.
var statements = []string{"Exec", "Query", "QueryRow", "Queue", "SendBatch", "CopyFrom", "Scan"}

// F40, X8: only the database's clock gets into the database. No statement takes a
// time of this machine: not as an argument, not as a generated parameter; and who
// reads the clock at all is listed.
func TestNoClockOfOursReachesSQL(t *testing.T) {
	t.Parallel()
	timed := map[string]bool{}
	sources(t, func(path string, text []byte) {
		if strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "cmd/") || strings.HasPrefix(path, "platform/platformtest") {
			return
		}
		ast.Inspect(parsed(t, path, text), func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if dotted(n) == "time.Now" {
					timed[path] = true
				}
			case *ast.CallExpr:
				fun, ok := n.Fun.(*ast.SelectorExpr)
				if !ok || !slices.Contains(statements, fun.Sel.Name) {
					return true
				}
				for _, arg := range n.Args {
					ast.Inspect(arg, func(a ast.Node) bool {
						if dotted(a) == "time.Now" {
							t.Errorf("%s: a time of this machine is given to %s", path, fun.Sel.Name)
						}
						return true
					})
				}
			case *ast.TypeSpec:
				if fields, ok := n.Type.(*ast.StructType); ok && strings.HasPrefix(path, "platform/internal/db/") && strings.HasSuffix(n.Name.Name, "Params") {
					for _, f := range fields.Fields.List {
						if typ := dotted(f.Type); typ == "time.Time" || typ == "pgtype.Timestamptz" {
							t.Errorf("%s: %s takes a time; give it a wait and add that to now()", path, n.Name.Name)
						}
					}
				}
			}
			return true
		})
	}, ".go")
	for path := range timed {
		if !slices.Contains(readsClock, path) {
			t.Errorf("%s reads this machine's clock: if it only measures a duration, list it here", path)
		}
	}
	if len(timed) == 0 {
		t.Error("no file reads the clock: the test sees nothing")
	}
}
