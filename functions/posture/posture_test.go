package posture

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/functions/connectors"
	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/host"
	"github.com/pgmill/pgmill/platform/platformtest"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

// N43, N44, N45: with both modules on a host that owns nothing, a report becomes one
// sanitized signal; handling everything again changes nothing.
func TestAReportBecomesOneSanitizedSignal(t *testing.T) {
	t.Parallel()
	dsn := platformtest.DSN(t, connectors.Module, Module)
	db := platformtest.Pool(t, dsn)
	_, as := pgtest.Role(t, dsn, "pgmill_runtime")
	reg := platform.NewRegistry()
	for _, m := range []platform.Module{connectors.Module, Module} {
		if err := reg.Add(m); err != nil {
			t.Fatal(err)
		}
	}
	platformtest.HostWith(t, &host.Worker{Database: as, Registry: reg}, connectors.Aggregate, ConnectorHealth)
	report := func(h connectors.Health) {
		t.Helper()
		if err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
			if err := connectors.Add(t.Context(), tx, "mail", h.Instance, "org:acme"); err != nil {
				return err
			}
			_, err := connectors.RecordHealth(t.Context(), tx, h)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	report(connectors.Health{Instance: "mail-1", Status: connectors.Degraded, Reason: "mail.slow", Detail: "C4NARY"})
	report(connectors.Health{Instance: "mail-2", Status: connectors.Healthy})
	report(connectors.Health{Instance: "mail-1", Status: connectors.Failing, Reason: "mail.quota", Detail: "C4NARY"})
	done := func() {
		t.Helper()
		platformtest.WaitFor(t, db, `select count(*) = 2 and bool_and(position = 3) from mill.subscriptions`)
	}
	done()
	const all = `select string_agg(s::text, ' ' order by event_id) from posture.signal s`
	first := pgtest.Ask[string](t, db, all)
	if got, want := pgtest.Ask[string](t, db, `select string_agg(instance || ' ' || signal || ' ' || scope, ', ' order by event_id) from posture.signals`),
		"mail-1 at_risk org:acme, mail-2 met org:acme, mail-1 not_met org:acme"; got != want {
		t.Errorf("signals are %s, want %s", got, want)
	}
	if got, want := pgtest.Ask[string](t, db, `select string_agg(instance || ' ' || signal, ', ' order by instance) from posture.connector_instances`),
		"mail-1 not_met, mail-2 met"; got != want {
		t.Errorf("instances stand as %s, want %s", got, want)
	}
	if strings.Contains(first, "C4NARY") || strings.Contains(first, "quota") || strings.Contains(first, "slow") {
		t.Errorf("posture keeps what the report says: %s (N44)", first)
	}
	if got, want := pgtest.Ask[string](t, db, `select connector || ' ' || status || ' ' || healthy || degraded || failing from connectors.connector_health`), "mail failing 101"; got != want {
		t.Errorf("the connector is %s, want %s", got, want)
	}
	pgtest.Exec(t, db, `select mill.move_subscription('posture.connector_health', 'zero')`)
	done()
	if got := pgtest.Ask[string](t, db, all); got != first {
		t.Errorf("a replay changed the signals to\n%s\nfrom\n%s", got, first)
	}
}

func TestOwners(t *testing.T) {
	t.Parallel()
	o := ConnectorHealth.Owners
	if !o.Complete() || o.SourceData != "connectors" || o.Projection != "posture" || len(o.HandOffs) == 0 {
		t.Errorf("owners are %+v; want the source to be connectors', the projection posture's, and hand-offs (N41, N44)", o)
	}
}
