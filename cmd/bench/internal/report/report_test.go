package report

import (
	"strings"
	"testing"

	"github.com/pgmill/pgmill/cmd/bench/internal/lab"
)

func line(run string, round int, rate float64) lab.Line {
	return lab.Line{Comparison: "emit", Run: run, Session: "s", Round: round, Values: map[string]float64{"rate": rate, "seconds": 1}}
}

func TestRatiosAreTakenPairByPair(t *testing.T) {
	t.Parallel()
	// The machine slows down to a half between the rounds: the ratio of medians
	// would be 0.75, the pairs all say 0.5.
	lines := []lab.Line{
		line("base", 1, 1000), line("ours", 1, 500),
		line("base", 2, 500), line("ours", 2, 250),
		line("base", 3, 500), line("ours", 3, 250), line("ours", 4, 9999), // no partner
	}
	if got := figures(lines, "ours", "base", "rate"); len(got) != 3 || got[0] != 0.5 || got[2] != 0.5 {
		t.Errorf("figures(%v) = %v; want three times 0.5", lines, got)
	}
}

func TestGoals(t *testing.T) {
	t.Parallel()
	lines := []lab.Line{line("base", 1, 1000), line("ours", 1, 900), line("base", 2, 1000), line("ours", 2, 800)}
	tests := []struct {
		name string
		goal Goal
		want string
	}{
		{name: "a ratio that is reached is met", goal: Goal{Of: "ours", Than: "base", Op: ">=", Want: 0.85}, want: "**met**"},
		{name: "a ratio that is missed is not", goal: Goal{Of: "ours", Than: "base", Op: ">=", Want: 0.9}, want: "**not met**"},
		{name: "an upper bound", goal: Goal{Of: "ours", Op: "<=", Want: 850}, want: "**met**"},
		{name: "runs that are missing are not judged", goal: Goal{Of: "other", Op: "<=", Want: 850}, want: "not measured"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			checks := Comparison{Goals: []Goal{tt.goal}}.Check(lines)
			if got := verdict(checks[0]); !strings.HasPrefix(got, tt.want) {
				t.Errorf("verdict(%v) = %q; want %q", tt.goal, got, tt.want)
			}
		})
	}
}

func TestTableShowsFailuresAndLeavesRejectedRunsOut(t *testing.T) {
	t.Parallel()
	noisy := line("ours", 1, 1)
	noisy.Rejected = true
	lines := []lab.Line{
		{Machine: "two cores"}, line("base", 1, 1000), noisy, line("ours", 1, 500),
		{Comparison: "emit", Run: "broken", Failed: "not wired"},
	}
	var out strings.Builder
	if err := Table(&out, lines, []Comparison{{Name: "emit", Base: "base"}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Machine: two cores", "500..500", "0.50..0.50", "not wired"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, out.String())
		}
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{1234567: "1,234,567", 999: "999", -1234: "-1,234", 12.34: "12.3", 0.834: "0.83", 0.0123: "0.012", 0: "0.00"} {
		if got := number(v); got != want {
			t.Errorf("number(%v) = %q; want %q", v, got, want)
		}
	}
}
