package connectors

import (
	"context"
	"embed"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
)

// HealthChanged is the type of the event that an instance's health is other than
// before. Its target is connector/instance, its data a Changed.
const HealthChanged = "connector.health.changed"

// Changed is what a HealthChanged event points to.
type Changed struct {
	Record    int64  `json:"record"` // for ReadHealth
	Connector string `json:"connector"`
	Instance  string `json:"instance"`
}

// Status is how healthy an instance is, or a connector: as its worst instance.
type Status string

// The statuses.
const (
	Healthy  Status = "healthy"
	Degraded Status = "degraded"
	Failing  Status = "failing"
)

// Health is a report on an instance.
type Health struct {
	Instance string
	Status   Status
	Reason   platform.Reason // a code; "" means none
	Detail   string          // in words, at most 2000 characters; it stays with this module
}

// Signal is what other modules may know of a report.
type Signal struct {
	Instance, Connector string
	Status              Status
	At                  time.Time
}

//go:embed migrations/*.sql
var migrations embed.FS

// Module owns the schema connectors.
var Module = platform.Module{Name: "connectors", Migrations: migrations}

func init() { platform.Register(Module, Aggregate, Prepare, PrepareStatus) }

// Add makes an instance of a connector known; again is nothing new. scope "" means
// install.
func Add(ctx context.Context, tx platform.Tx, connector, instance, scope string) error {
	var done bool
	return tx.QueryRow(ctx, "select connectors.add($1, $2, coalesce(nullif($3, ''), 'install')) is not null", connector, instance, scope).Scan(&done)
}

// RecordHealth notes a report in the caller's transaction and answers its id. An
// instance that was not added is refused.
func RecordHealth(ctx context.Context, tx platform.Tx, h Health) (record int64, err error) {
	err = tx.QueryRow(ctx, "select connectors.record_health($1, $2, nullif($3, ''), nullif($4, ''))",
		h.Instance, string(h.Status), string(h.Reason), h.Detail).Scan(&record)
	return record, err
}

// ReadHealth answers what other modules may know of a report. ok is false if there is
// none (any more).
func ReadHealth(ctx context.Context, tx platform.Tx, record int64) (s Signal, ok bool, err error) {
	err = tx.QueryRow(ctx, "select instance, connector, status, at from connectors.read_health($1)", record).
		Scan(&s.Instance, &s.Connector, &s.Status, &s.At)
	if errors.Is(err, pgx.ErrNoRows) {
		return Signal{}, false, nil
	}
	return s, err == nil, err
}
