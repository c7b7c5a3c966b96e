package main

import (
	"slices"
	"testing"

	"github.com/pgmill/pgmill/cmd/bench/internal/lab"
)

func TestComparisonsNameWhatThereIs(t *testing.T) {
	t.Parallel()
	for _, c := range known() {
		var labels []string
		for _, e := range c.Runs {
			spec, err := lab.ParseSpec(e.Spec)
			if err != nil {
				t.Errorf("%s: %v", c.Name, err)
				continue
			}
			at := slices.IndexFunc(scenarios, func(s lab.Scenario) bool { return s.Name == spec.Name })
			if at < 0 {
				t.Errorf("%s: there is no scenario %s", c.Name, spec.Name)
				continue
			}
			for name := range spec.Params {
				if _, ok := scenarios[at].Defaults[name]; !ok {
					t.Errorf("%s: %s has no parameter %s", c.Name, spec.Name, name)
				}
			}
			labels = append(labels, e.Label())
		}
		if c.Base != "" && !slices.Contains(labels, c.Base) {
			t.Errorf("%s: the base %q is not among %q", c.Name, c.Base, labels)
		}
		for _, g := range c.Goals {
			if !slices.Contains(labels, g.Of) || g.Than != "" && !slices.Contains(labels, g.Than) {
				t.Errorf("%s: the goal %q is about none of %q", c.Name, g, labels)
			}
			if g.Op != "<=" && g.Op != ">=" {
				t.Errorf("%s: goal %q: %q is neither <= nor >=", c.Name, g, g.Op)
			}
		}
		if c.Rounds < 1 || len(c.Goals) == 0 {
			t.Errorf("%s: %d rounds, %d goals; at least one each", c.Name, c.Rounds, len(c.Goals))
		}
	}
}

func TestScenarioNamesAreUnique(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, s := range scenarios {
		if _, err := lab.ParseSpec(s.Name); err != nil || seen[s.Name] {
			t.Errorf("scenario %q is there twice or badly named: %v", s.Name, err)
		}
		seen[s.Name] = true
	}
}

func TestSpecsReadBackAsWritten(t *testing.T) {
	t.Parallel()
	for text, label := range map[string]string{
		"emit:hand":              "emit:hand",
		"emit:hand,c=64,n=500":   "emit:hand,c=64",
		"long:pinned,secs=1200":  "long:pinned,secs=1200",
		"emit:hand,c=16,delay=1": "emit:hand,c=16,delay=1",
	} {
		s, err := lab.ParseSpec(text)
		if err != nil || s.String() != text || s.Label() != label {
			t.Errorf("ParseSpec(%q) = %v, label %q, %v; want itself and %q", text, s, s.Label(), err, label)
		}
	}
	for _, bad := range []string{"emit", "emit:", ":hand", "emit:hand,x=1", "emit:hand,n", "emit:hand,n=many"} {
		if s, err := lab.ParseSpec(bad); err == nil {
			t.Errorf("ParseSpec(%q) = %v; want an error", bad, s)
		}
	}
}
