package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pgmill/pgmill/platform"
)

// noReasons are the words in quotes beside the reasons in what answers them.
var noReasons = strings.Fields("subscription parked_event schedule job running retrying infinity scope")

// Every reason that SQL answers for what waits is one of the closed set in
// platform/reason.go, and the table for operators has each of that set and no other.
func TestReasonCodesAreDocumented(t *testing.T) {
	t.Parallel()
	set := reasonSet(t)
	for file, from := range map[string]string{"sql/functions/120_job_settle.sql": "-- Why what waits does not run", "sql/views/010_read.sql": "create or replace view mill.why_not_running"} {
		_, text, found := strings.Cut(read(t, file), from)
		if !found {
			t.Fatalf("%s has no %q", file, from)
		}
		for _, m := range regexp.MustCompile(`'([a-z]+(?:_[a-z]+)*)'`).FindAllStringSubmatch(text, -1) {
			if !slices.Contains(set, m[1]) && !slices.Contains(noReasons, m[1]) {
				t.Errorf("%s answers %q, which is not in platform/reason.go", file, m[1])
			}
		}
	}
	_, text, _ := strings.Cut(read(t, "deploy/README.md"), "\n## Reason codes\n")
	text, _, _ = strings.Cut(text, "\n## ")
	var table []string
	for _, m := range regexp.MustCompile("(?m)^\\| (`[^|]*) \\|").FindAllStringSubmatch(text, -1) {
		for code := range strings.SplitSeq(m[1], ", ") {
			table = append(table, strings.Trim(code, "`"))
		}
	}
	for _, code := range set {
		if !slices.Contains(table, code) {
			t.Errorf("deploy/README.md does not say what %s means", code)
		}
	}
	for _, code := range table {
		if !slices.Contains(set, code) {
			t.Errorf("deploy/README.md explains %q, which is not in platform/reason.go", code)
		}
	}
}

// What an outside worker may say without a dot is what an author may: the rest of the closed
// set is pgmill's own.
func TestOutsidersMaySayTheSameReasons(t *testing.T) {
	t.Parallel()
	_, text, _ := strings.Cut(read(t, "sql/functions/130_job_worker.sql"), "check_reason(coalesce(reason, ''), '{")
	text, _, _ = strings.Cut(text, "}")
	workers := strings.Split(text, ",")
	for _, code := range reasonSet(t) {
		author := platform.ReasonOf(platform.Because(platform.Reason(code), nil)) == platform.Reason(code) && code != string(platform.ReasonBadReason)
		if author != slices.Contains(workers, code) {
			t.Errorf("an author may say %s: %v, an outside worker may say %q", code, author, workers)
		}
	}
}

// reasonSet are the values of the constants of type Reason.
func reasonSet(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../platform/reason.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var set []string
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Values) == 1 {
			if id, ok := spec.Type.(*ast.Ident); ok && id.Name == "Reason" {
				code, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				set = append(set, code)
			}
		}
		return true
	})
	if len(set) < 30 {
		t.Fatalf("found only %q", set)
	}
	return set
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile("../../" + path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
