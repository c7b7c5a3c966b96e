package lab

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Spec names one run: a scenario and its parameters, "emit:hand,c=64,delay=1000".
// A parameter that is not given has the scenario's default.
type Spec struct {
	Name   string
	Params map[string]int
}

// Params that a spec may carry.
var known = map[string]string{
	"n":       "operations, events or pairs",
	"c":       "concurrent clients",
	"direct":  "1: a DSN past the pooler for LISTEN",
	"delay":   "commit_delay in microseconds, with commit_siblings = 0, for every session of the run",
	"subs":    "subscriptions on the stream",
	"secs":    "length in seconds",
	"times":   "how often the backlog is filled and drained",
	"rate":    "messages a second of an open loop",
	"slots":   "jobs worked on at once",
	"limits":  "1: limits that are not met",
	"big":     "jobs that one scope has waiting",
	"conns":   "connections for handlers",
	"waiting": "jobs that wait before the run",
}

// ParseSpec reads the written form; an unknown parameter is an error.
func ParseSpec(text string) (Spec, error) {
	parts := strings.Split(text, ",")
	s := Spec{Name: parts[0], Params: map[string]int{}}
	if family, variant, ok := strings.Cut(s.Name, ":"); !ok || family == "" || variant == "" {
		return s, fmt.Errorf("%q: a run is written family:variant[,param=number]", text)
	}
	for _, p := range parts[1:] {
		name, value, _ := strings.Cut(p, "=")
		n, err := strconv.Atoi(value)
		if _, ok := known[name]; !ok || err != nil {
			return s, fmt.Errorf("%q: %q is not one of %s with a number", text, p, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
		s.Params[name] = n
	}
	return s, nil
}

// String is the written form, parameters in order.
func (s Spec) String() string {
	text := s.Name
	for _, name := range slices.Sorted(maps.Keys(s.Params)) {
		text += fmt.Sprintf(",%s=%d", name, s.Params[name])
	}
	return text
}

// Label is String without n: what a table row is called.
func (s Spec) Label() string {
	short := Spec{s.Name, maps.Clone(s.Params)}
	delete(short.Params, "n")
	return short.String()
}

// Family is the part of the name before the colon.
func (s Spec) Family() string {
	family, _, _ := strings.Cut(s.Name, ":")
	return family
}
