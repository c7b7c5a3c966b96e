package posture

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

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

// N39, N44: a handler of another module reads the signals of one organization by the seam,
// and the table not at all; a reader of views has neither.
func TestOtherModulesReadSignalsByTheSeamOnly(t *testing.T) {
	t.Parallel()
	assurance := platform.Module{Name: "assurance", Migrations: fstest.MapFS{"0001_assurance.sql": {Data: []byte("-- +goose Up\ncreate table assurance.finding (n bigint generated always as identity, what text);")}}}
	dsn := platformtest.DSN(t, connectors.Module, Module, assurance)
	db := platformtest.Pool(t, dsn)
	pgtest.Exec(t, db, `insert into posture.signal (subscription, event_id, connector, instance, signal, record, observed_at, scope) values
		('p', 1, 'mail', 'mail-2', 'met', 1, '2026-11-30 10:00Z', 'org:acme'), ('p', 2, 'mail', 'mail-1', 'at_risk', 2, '2026-11-30 11:00Z', 'org:acme'),
		('p', 3, 'mail', 'mail-1', 'not_met', 3, '2026-11-30 12:00Z', 'org:acme'), ('p', 4, 'mail', 'mail-9', 'met', 4, '2026-11-30 13:00Z', 'org:other')`)
	as := func(handle func(ctx context.Context, tx pgx.Tx) error) error {
		t.Helper()
		report := platform.Subscription{Name: "assurance.report", Events: []string{"assurance.due"}, Owners: platform.OwnedBy("assurance"),
			Handle: func(ctx context.Context, tx pgx.Tx, _ platform.Event) error { return handle(ctx, tx) }}
		return platformtest.Handle(t, db, report, platform.NewEvent{Type: "assurance.due", Target: "org:acme"})
	}
	if err := as(func(ctx context.Context, tx pgx.Tx) error {
		all, err := ReadSignals(ctx, tx, "org:acme")
		for _, s := range all {
			_, more := tx.Exec(ctx, "insert into assurance.finding (what) values ($1)", strings.Join([]string{s.Connector, s.Instance, s.Signal, s.At.UTC().Format("15:04")}, " "))
			err = errors.Join(err, more)
		}
		return err
	}); err != nil {
		t.Fatalf("a handler of another module: %v", err)
	}
	if got, want := pgtest.Ask[string](t, db, `select string_agg(what, ', ' order by n) from assurance.finding`), "mail mail-1 not_met 12:00, mail mail-2 met 10:00"; got != want {
		t.Errorf("it reads %s, want %s", got, want)
	}
	denied := func(err error) bool {
		var pe *pgconn.PgError
		return errors.As(err, &pe) && pe.Code == "42501"
	}
	for _, q := range []string{"select record from posture.signal", "insert into posture.signal select * from posture.signal", "delete from posture.signal"} {
		if err := as(func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, q); return err }); !denied(err) {
			t.Errorf("%s by a handler of another module = %v, want 42501", q, err)
		}
	}
	_, reader := pgtest.Role(t, dsn, "mill_reader")
	if _, err := platformtest.Pool(t, reader).Exec(t.Context(), "select posture.read_signals('org:acme')"); !denied(err) {
		t.Errorf("the seam by a reader = %v, want 42501", err)
	}
}

func TestOwners(t *testing.T) {
	t.Parallel()
	o := ConnectorHealth.Owners
	if !o.Complete() || o.SourceData != "connectors" || o.Projection != "posture" || len(o.HandOffs) == 0 {
		t.Errorf("owners are %+v; want the source to be connectors', the projection posture's, and hand-offs (N41, N44)", o)
	}
}
