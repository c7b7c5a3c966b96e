package host

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pgmill/pgmill/platform"
)

func samples(t *testing.T, m *metrics) map[string]float64 {
	t.Helper()
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, s := range f.GetMetric() {
			name := f.GetName()
			for _, l := range s.GetLabel() {
				name += " " + l.GetName() + "=" + l.GetValue()
			}
			all[name] = s.GetCounter().GetValue() + s.GetGauge().GetValue() + float64(s.GetHistogram().GetSampleCount())
		}
	}
	return all
}

func TestEverySeriesIsZeroFromTheStart(t *testing.T) {
	t.Parallel()
	got := samples(t, newMetrics(withFunctions(t, "a.one")))
	for _, name := range []string{
		"events_advanced_total", "looks_total outcome=advanced", "looks_total outcome=empty", "looks_total outcome=busy",
		"bells_total kind=heard", "bells_total kind=rung", "polls_total", "claims_derived_total", "claims_held", "claims_rescued_total",
		"claims_returned_total", "stale_writer_rejected_total", "batches_total outcome=ok", "batches_total outcome=failed", "batches_total outcome=lost",
		"events_handled_total", "events_failed_total reason=panic", "events_failed_total reason=author", "events_parked_total", "shards_held_total",
		"lease_renewals_total outcome=ok", "lease_renewals_total outcome=failed", "lease_renewals_total outcome=broken", "listen_up",
		"dead_letters_last_hour state=failed", "dead_letters_last_hour state=timeout", "dead_letters_last_hour state=denied",
		"listen_reconnects_total", "subscription_lag_events subscription=a.one", "handler_seconds",
	} {
		if v, ok := got["pgmill_"+name]; !ok || v != 0 {
			t.Errorf("pgmill_%s = %v, there: %v", name, v, ok)
		}
	}
	for name := range got {
		if !strings.HasPrefix(name, "pgmill_") && !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
			t.Errorf("%s has a prefix that is not ours", name)
		}
	}
}

func TestCountingMakesNoNewSeries(t *testing.T) {
	t.Parallel()
	m := newMetrics(withFunctions(t, "a.one"))
	before := samples(t, m)
	m.EventsAdvanced(2)
	m.Looked("empty")
	m.Looked("what")
	m.BellHeard()
	m.BellRung()
	m.Polled()
	m.ClaimsDerived(3)
	m.ClaimsHeld(4)
	m.ClaimsRescued(1)
	m.ClaimsReturned(1)
	m.StaleWriterRejected()
	m.BatchDone("ok")
	m.EventsHandled(5)
	m.EventFailed("panic")
	m.EventFailed("stock.insufficient")
	m.EventFailed("unheard_of")
	m.EventParked()
	m.ShardHeld()
	m.LeaseRenewed("broken")
	m.ListenUp(true)
	m.ListenReconnected()
	m.HandlerTook(time.Millisecond)
	m.LagOf("a.one", 7)
	m.DeadLetters(map[string]int64{"timeout": 3, "what": 1})
	after := samples(t, m)
	for name := range after {
		if _, ok := before[name]; !ok && strings.HasPrefix(name, "pgmill_") {
			t.Errorf("new series %s", name)
		}
	}
	for name, want := range map[string]float64{
		"events_advanced_total": 2, "looks_total outcome=empty": 1, "looks_total outcome=busy": 1, "claims_held": 4, "events_handled_total": 5,
		"events_failed_total reason=author": 2, "events_failed_total reason=panic": 1, "subscription_lag_events subscription=a.one": 7,
		"handler_seconds": 1, "listen_up": 1, "dead_letters_last_hour state=failed": 0, "dead_letters_last_hour state=timeout": 3,
	} {
		if after["pgmill_"+name] != want {
			t.Errorf("pgmill_%s = %v, want %v", name, after["pgmill_"+name], want)
		}
	}
}

// The closed set of reasons is platform's: one that is added there has a series.
func TestEverySystemReasonHasASeries(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "../reason.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 || !strings.HasPrefix(spec.Names[0].Name, "Reason") {
			return true
		}
		if lit, ok := spec.Values[0].(*ast.BasicLit); ok {
			n++
			if text, _ := strconv.Unquote(lit.Value); !slices.Contains(eventReasons, platform.Reason(text)) {
				t.Errorf("%s = %q is not in eventReasons", spec.Names[0].Name, text)
			}
		}
		return true
	})
	if n == 0 {
		t.Error("no reasons found")
	}
}
