package posture

import (
	"context"
	"embed"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/functions/connectors"
	"github.com/pgmill/pgmill/platform"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Module owns the schema posture.
var Module = platform.Module{Name: "posture", Migrations: migrations}

// ConnectorHealth keeps a sanitized signal of each change of a connector instance's
// health. The event and the report are the connector module's, the projection and what
// is shown of it are posture's; reports for an audit are made by reporting and
// assurance from there.
var ConnectorHealth = platform.Subscription{
	Name:   "posture.connector_health",
	Module: Module.Name,
	Events: []string{connectors.HealthChanged},
	Owners: platform.Owners{
		SourceEvent: connectors.Module.Name, SourceData: connectors.Module.Name,
		Projection: Module.Name, Status: Module.Name, Result: Module.Name, Evidence: Module.Name, SecurityEvent: Module.Name,
		HandOffs: []string{"reporting", "assurance"},
	},
	From:       platform.FromZero,
	Replayable: true,
	OnPoison:   platform.Park,
	Handle:     project,
}

// Signal is what other modules may know of how a connector instance stands.
type Signal struct {
	Connector, Instance string
	Signal              string // met, at_risk or not_met
	At                  time.Time
}

// ReadSignals answers the newest signal of each connector instance of a scope, such as
// org:acme, by the instance's name.
func ReadSignals(ctx context.Context, tx pgx.Tx, scope string) ([]Signal, error) {
	rows, err := tx.Query(ctx, "select connector, instance, signal, observed_at from posture.read_signals($1)", scope)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Signal])
}

func init() { platform.Register(Module, ConnectorHealth) }

// signals are what posture makes of a status.
var signals = map[connectors.Status]string{connectors.Healthy: "met", connectors.Degraded: "at_risk", connectors.Failing: "not_met"}

func project(ctx context.Context, tx pgx.Tx, e platform.Event) error {
	changed, err := platform.Data[connectors.Changed](e)
	if err != nil {
		return err
	}
	health, ok, err := connectors.ReadHealth(ctx, tx, changed.Record)
	if err != nil || !ok { // a report that is cleaned up by now gives no signal any more
		return err
	}
	_, err = tx.Exec(ctx, `
		insert into posture.signal (subscription, event_id, connector, instance, signal, record, observed_at, scope)
		values ($1, $2, $3, $4, $5, $6, $7, $8)
		on conflict (subscription, event_id) do nothing`,
		"posture.connector_health", e.ID, health.Connector, health.Instance, signals[health.Status], changed.Record, health.At, e.Scope)
	return err
}
