package connectors

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/platformtest"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

// N43: a program that has the seams adds instances and reports on them; each change is
// one event that holds pointers only, and the connector is as its worst instance.
func TestReportsBecomeTheHealthOfTheConnector(t *testing.T) {
	t.Parallel()
	dsn := platformtest.DSN(t, Module)
	db := platformtest.Pool(t, dsn)
	_, as := pgtest.Role(t, dsn, "mill_module")
	program := platformtest.Pool(t, as)
	report := func(h Health) (record int64, err error) {
		err = pgx.BeginFunc(t.Context(), program, func(tx pgx.Tx) error {
			record, err = RecordHealth(t.Context(), tx, h)
			return err
		})
		return record, err
	}
	must := func(h Health) int64 {
		t.Helper()
		record, err := report(h)
		if err != nil {
			t.Fatalf("RecordHealth(%+v): %v", h, err)
		}
		return record
	}
	err := pgx.BeginFunc(t.Context(), program, func(tx pgx.Tx) error {
		return errors.Join(Add(t.Context(), tx, "mail", "mail-1", ""), Add(t.Context(), tx, "mail", "mail-2", "org:acme"), Add(t.Context(), tx, "mail", "mail-1", ""))
	})
	if err != nil {
		t.Fatal(err)
	}
	must(Health{Instance: "mail-1", Status: Healthy})
	must(Health{Instance: "mail-1", Status: Healthy}) // nothing new: no event
	last := must(Health{Instance: "mail-2", Status: Failing, Reason: "mail.quota", Detail: "C4NARY: mailbox of ann is full"})
	if got, want := pgtest.Ask[string](t, db, `select string_agg(target || ' ' || scope, ', ' order by id) from pgmill.event where type = 'connector.health.changed'`),
		"mail/mail-1 install, mail/mail-2 org:acme"; got != want {
		t.Errorf("events are of %s, want %s", got, want)
	}
	if n := pgtest.Ask[int](t, db, `select count(*) from pgmill.event e where e::text like '%C4NARY%' or e::text like '%quota%'`); n > 0 {
		t.Error("an event holds what a report says (N44)")
	}
	for _, h := range []struct {
		Health
		code string
	}{{Health{Instance: "mail-9", Status: Healthy}, "MI404"}, {Health{Instance: "mail-1", Status: "fine"}, "23514"}} {
		var pe *pgconn.PgError
		if _, err := report(h.Health); !errors.As(err, &pe) || pe.Code != h.code {
			t.Errorf("RecordHealth(%+v) = %v, want %s", h.Health, err, h.code)
		}
	}

	reg := func(e platform.NewEvent) error { return platformtest.Handle(t, db, Aggregate, e) }
	event := platform.NewEvent{Type: HealthChanged, Target: "mail/mail-2", Data: Changed{last, "mail", "mail-2"}}
	const health = `select connector || ' ' || status || ' ' || healthy || degraded || failing from connectors.connector_health`
	for range 2 { // again is nothing new (N45)
		if err := reg(event); err != nil {
			t.Fatal(err)
		}
		if got := pgtest.Ask[string](t, db, health); got != "mail failing 101" {
			t.Errorf("the connector is %s, want failing with one healthy and one failing", got)
		}
	}
	must(Health{Instance: "mail-2", Status: Degraded})
	if err := reg(event); err != nil {
		t.Fatal(err)
	}
	if got := pgtest.Ask[string](t, db, health); got != "mail degraded 110" {
		t.Errorf("the connector is %s, want degraded", got)
	}
	if err := reg(platform.NewEvent{Type: HealthChanged, Target: "x", Data: map[string]string{"record": "x"}}); platform.ReasonOf(err) != platform.ReasonBadData {
		t.Errorf("an event that cannot be read = %v", err)
	}
	if n := pgtest.Ask[int](t, db, `select count(*) from connectors.instances i where i::text like '%C4NARY%'`); n > 0 {
		t.Error("a view shows what a report says in words")
	}
}

// N39: to a program and to other modules the tables are closed.
func TestTablesAreTheModules(t *testing.T) {
	t.Parallel()
	dsn := platformtest.DSN(t, Module)
	_, as := pgtest.Role(t, dsn, "mill_module")
	program := platformtest.Pool(t, as)
	for _, q := range []string{"insert into connectors.connector (id) values ('x')", "select detail from connectors.health_record", "delete from connectors.health"} {
		if _, err := program.Exec(t.Context(), q); err == nil || !strings.Contains(err.Error(), "42501") {
			t.Errorf("%s as another = %v, want 42501", q, err)
		}
	}
}

func TestOwners(t *testing.T) {
	t.Parallel()
	if o := Aggregate.Owners; !o.Complete() || len(o.HandOffs) != 1 || o.HandOffs[0] != "posture" {
		t.Errorf("owners are %+v; want all seven, handed off to posture (N41)", o)
	}
}
