package host

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestDemoArgsAreCheckedTogether(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		args demoArgs
		want []string
	}{
		{name: "the defaults are fine", args: demoArgs{seconds: 20, clients: 8}},
		{name: "scale may equal clients", args: demoArgs{seconds: 1, clients: 8, scale: 8}},
		{name: "scale below clients is refused", args: demoArgs{seconds: 1, clients: 8, scale: 7}, want: []string{"--scale is 7 and --clients 8"}},
		{name: "all faults at once", args: demoArgs{seconds: 0, clients: 0, scale: -1}, want: []string{"--seconds is 0", "--clients is 0", "--scale is -1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := tt.args.check()
			for _, want := range tt.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("check(%+v) = %v; want %q in it", tt.args, err, want)
				}
			}
			if (err != nil) != (len(tt.want) > 0) {
				t.Errorf("check(%+v) = %v; want %d faults", tt.args, err, len(tt.want))
			}
		})
	}
}

func TestDemoComparesEveryBranch(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		branches  []branchBalance
		different int
		prints    string
	}{
		{name: "equal", branches: []branchBalance{{1, 5, 5}, {2, -7, -7}}, prints: "sum of 2                -2                   -2  equal"},
		{name: "equal sums hide nothing", branches: []branchBalance{{1, 5, 6}, {2, 6, 5}}, different: 2, prints: "2 differ"},
		{name: "none moved yet", branches: nil, prints: "sum of 0                 0                    0  equal"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var r demoReport
			r.compare(tt.branches)
			var out bytes.Buffer
			if err := r.write(&out); err != nil {
				t.Fatal(err)
			}
			if r.Different != tt.different || r.Equal != (tt.different == 0) || !strings.Contains(out.String(), tt.prints) {
				t.Errorf("%v: different %d, equal %v, printed\n%swant %d, %q", tt.branches, r.Different, r.Equal, out.String(), tt.different, tt.prints)
			}
		})
	}
}

func TestDemoPrintsOnlyWhatDiffersOfManyBranches(t *testing.T) {
	t.Parallel()
	var r demoReport
	branches := make([]branchBalance, 100)
	for i := range branches {
		branches[i].Bid = i + 1
	}
	branches[41].Demo = 1
	r.compare(branches)
	var out bytes.Buffer
	if err := r.write(&out); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(out.String(), "\n"); lines != 4 || !strings.Contains(out.String(), "42 ") {
		t.Errorf("printed %d lines, want 4 with branch 42:\n%s", lines, &out)
	}
}

func TestPgbenchIsToldTheDatabaseThroughItsEnvironment(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, dsn string
		want      []string
	}{
		{
			name: "a URL with pgx's own parameters",
			dsn:  "postgres://anna:pa%20ss@db.example:6000/shop?sslmode=require&pool_max_conns=4",
			want: []string{"PGHOST=db.example", "PGPORT=6000", "PGUSER=anna", "PGPASSWORD=pa ss", "PGDATABASE=shop", "PGSSLMODE=require", "PGOPTIONS=-c search_path=pgmill_demo"},
		},
		{
			name: "keywords, and options of the user's own",
			dsn:  "host=/run/pg user=anna dbname='my shop' sslmode=disable options='-c jit=off'",
			want: []string{"PGHOST=/run/pg", "PGDATABASE=my shop", "PGSSLMODE=disable", "PGOPTIONS=-c jit=off -c search_path=pgmill_demo"},
		},
		{
			name: "several hosts, each once although TLS is optional",
			dsn:  "postgres://anna@one:1,two:2/shop?sslmode=prefer&target_session_attrs=read-write",
			want: []string{"PGHOST=one,two", "PGPORT=1,2", "PGTARGETSESSIONATTRS=read-write"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := libpqEnv(tt.dsn, demoSchema)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range tt.want {
				if !slices.Contains(got, want) {
					t.Errorf("libpqEnv(%q) = %q; want %q", tt.dsn, got, want)
				}
			}
		})
	}
}

func TestPgbenchResultIsReadFromWhatItSays(t *testing.T) {
	t.Parallel()
	got, err := parsePgbench("pgbench (15.18)\nnumber of transactions actually processed: 5210\nnumber of failed transactions: 0 (0.000%)\n" +
		"tps = 521.5 (without initial connection time)\n")
	if want := (pgbenchResult{transactions: 5210, tps: 521.5}); err != nil || got != want {
		t.Errorf("parsePgbench = %+v, %v; want %+v", got, err, want)
	}
	if _, err := parsePgbench("something else"); err == nil {
		t.Error("parsePgbench of something else is no error")
	}
}

func TestPgbenchIsFoundInTheNamedFolder(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "pgbench")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PGMILL_PG_BIN", dir)
	if got, err := findPgbench(); got != path || err != nil {
		t.Errorf("findPgbench = %q, %v; want %q", got, err, path)
	}
}
