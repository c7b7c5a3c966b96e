package lab

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
)

// Scenario is one way to do one thing, "family:variant", with the parameters that
// hold where a spec does not say otherwise.
type Scenario struct {
	Name     string
	Note     string
	Defaults map[string]int
	Run      func(ctx context.Context, r *Run) error
}

// Run is one execution of a scenario: its parameters, its database, its meter and
// what it found.
type Run struct {
	Spec Spec
	Meter

	// Ops is what the rate counts; 0 means n.
	Ops    int
	values map[string]float64
}

// Param is a parameter's value in this run, 0 if the scenario does not have it.
func (r *Run) Param(name string) int { return r.Spec.Params[name] }

// N is the number of operations.
func (r *Run) N() int { return r.Param("n") }

// C is the number of concurrent clients.
func (r *Run) C() int { return r.Param("c") }

// Set records a figure under a name that says its unit: p99_ms, rss_mb, notifies_s.
func (r *Run) Set(name string, value float64) { r.values[name] = round(value) }

// Execute runs the scenario that the spec names.
func Execute(ctx context.Context, all []Scenario, text string) (Line, error) {
	spec, err := ParseSpec(text)
	if err != nil {
		return Line{}, err
	}
	at := slices.IndexFunc(all, func(s Scenario) bool { return s.Name == spec.Name })
	if at < 0 {
		return Line{}, fmt.Errorf("no scenario %s; see list", spec.Name)
	}
	for name, value := range all[at].Defaults {
		if _, given := spec.Params[name]; !given {
			spec.Params[name] = value
		}
	}
	r := &Run{Spec: spec, values: map[string]float64{}}
	if err := all[at].Run(ctx, r); err != nil {
		return Line{}, err
	}
	if r.elapsed == 0 {
		return Line{}, fmt.Errorf("%s measured nothing", spec)
	}
	r.report(cmp.Or(r.Ops, r.N()), r.Set)
	return Line{Run: spec.Label(), N: spec.Params["n"], C: spec.Params["c"], Values: r.values}, nil
}

// One is the whole of a run's process: execute, and print the line.
func One(ctx context.Context, out io.Writer, all []Scenario, text string) error {
	line, err := Execute(ctx, all, text)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(line)
}

// List prints every scenario with its parameters.
func List(out io.Writer, all []Scenario) error {
	for _, s := range slices.SortedFunc(slices.Values(all), func(a, b Scenario) int { return cmp.Compare(a.Name, b.Name) }) {
		params := ""
		for _, name := range slices.Sorted(maps.Keys(s.Defaults)) {
			params += fmt.Sprintf("%s=%d ", name, s.Defaults[name])
		}
		if _, err := fmt.Fprintf(out, "%-26s %-24s %s\n", s.Name, params, s.Note); err != nil {
			return err
		}
	}
	return nil
}
