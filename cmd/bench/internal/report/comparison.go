package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/pgmill/pgmill/cmd/bench/internal/lab"
)

// Comparison is a question that some runs answer, measured in turns.
type Comparison struct {
	Name   string
	Base   string // label of the run that the others are divided by; "" for none
	Metric string // what is compared: "" means rate
	Rounds int
	Runs   []Entry
	Goals  []Goal
}

// Entry is one run of a comparison.
type Entry struct {
	Spec string
	As   string // what the row is called; "" means the spec without n
}

// Label is what the row is called.
func (e Entry) Label() string {
	if e.As != "" {
		return e.As
	}
	s, err := lab.ParseSpec(e.Spec)
	if err != nil {
		return e.Spec
	}
	return s.Label()
}

// Goal is a figure of one run, or its ratio to the same figure of another, and what
// it should be.
type Goal struct {
	Of     string // label
	Metric string // "" means the comparison's
	Than   string // label of the base; "" compares the figure itself
	Op     string // ">=" or "<="
	Want   float64
}

func (g Goal) String() string {
	text := fmt.Sprintf("%s: %s %s %s", g.Of, cmp.Or(g.Metric, "rate"), g.Op, number(g.Want))
	if g.Than != "" {
		text += " of " + g.Than
	}
	return text
}

// Check is a goal and what was measured. Values are empty when the runs it needs
// are missing.
type Check struct {
	Goal   Goal
	Values []float64 // one a round, sorted
}

// Met says whether the median is as it should be.
func (c Check) Met() bool {
	if len(c.Values) == 0 {
		return false
	}
	m := Median(c.Values)
	if c.Goal.Op == "<=" {
		return m <= c.Goal.Want
	}
	return m >= c.Goal.Want
}

// Check holds a comparison's goals against its lines.
func (c Comparison) Check(lines []lab.Line) []Check {
	var checks []Check
	for _, g := range c.Goals {
		g.Metric = cmp.Or(g.Metric, c.metric())
		checks = append(checks, Check{Goal: g, Values: figures(lines, g.Of, g.Than, g.Metric)})
	}
	return checks
}

// MetricOf is what the known comparisons compare of all these scenarios; "" is rate.
func MetricOf(known []Comparison, specs []string) string {
	metrics := map[string]bool{}
	for _, spec := range specs {
		name, _, _ := strings.Cut(spec, ",")
		at := slices.IndexFunc(known, func(c Comparison) bool {
			return slices.ContainsFunc(c.Runs, func(e Entry) bool { return e.Spec == name || strings.HasPrefix(e.Spec, name+",") })
		})
		if at < 0 {
			return ""
		}
		metrics[known[at].Metric] = true
	}
	for m := range metrics {
		if len(metrics) == 1 {
			return m
		}
	}
	return ""
}

func (c Comparison) metric() string { return cmp.Or(c.Metric, "rate") }

// figures are a run's values of a metric or, with than, their ratios to the value
// of another run in the same round: what drifts over minutes is in both.
func figures(lines []lab.Line, of, than, metric string) []float64 {
	var all []float64
	for _, l := range lines {
		v, ok := l.Values[metric]
		if l.Run != of || !ok {
			continue
		}
		if than != "" {
			at := slices.IndexFunc(lines, func(b lab.Line) bool {
				return b.Run == than && b.Session == l.Session && b.Round == l.Round && b.Values[metric] != 0
			})
			if at < 0 {
				continue
			}
			v /= lines[at].Values[metric]
		}
		all = append(all, v)
	}
	slices.Sort(all)
	return all
}

// Median of sorted values; 0 of none.
func Median(sorted []float64) float64 {
	n := len(sorted)
	switch {
	case n == 0:
		return 0
	case n%2 == 1:
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}
