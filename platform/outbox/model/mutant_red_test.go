//go:build mutants

package model

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Each mutant is found out, by a fault of the kind that it was made for: the checks
// of this package can fail.
func TestMutantsAreRed(t *testing.T) {
	t.Parallel()
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if _, err := w.pool.Exec(t.Context(), `create extension if not exists dblink schema public`); err != nil {
				t.Fatal(err)
			}
			w.alter(t, m.changes(w)...)
			patient := &patient{TB: t}
			faults := append(m.live(patient, w), patient.faults.all...)
			var kinds []string
			for _, f := range faults {
				t.Log(f)
				kinds = append(kinds, f.kind)
			}
			if !slices.ContainsFunc(m.want, func(k string) bool { return slices.Contains(kinds, k) }) {
				t.Errorf("the checks found %q; want %s", kinds, strings.Join(m.want, " or "))
			}
		})
	}
}

// patient is a test to which errors are findings.
type patient struct {
	testing.TB
	faults found
}

func (p *patient) Errorf(format string, args ...any) { p.faults.add(faultf("error", format, args...)) }

func (p *patient) Error(args ...any) { p.faults.add(faultf("error", "%s", fmt.Sprint(args...))) }
