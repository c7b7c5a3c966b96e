package platformtest

import (
	"encoding/json"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/platform"
)

// Tick runs a schedule's handler on one tick as Handle runs a subscription's, no host
// needed: what it wrote is committed if it returns nil. Name and Event of t are filled
// in. No event is written and no fire time moves.
func Tick(t testing.TB, pool *pgxpool.Pool, s platform.Schedule, tick platform.Tick) error {
	t.Helper()
	reg := platform.NewRegistry()
	if err := reg.Add(s); err != nil {
		t.Fatalf("register: %v", err)
	}
	s = platform.Of[platform.Schedule](reg)[0]
	data, err := json.Marshal(map[string]any{"at": tick.At, "missed": tick.Missed, "manual": tick.Manual})
	if err != nil {
		t.Fatalf("tick: %v", err)
	}
	return handle(t, pool, s.Subscription(), platform.Event{Type: platform.TickPrefix + s.Name, Target: s.Name, Scope: "install", Data: data})
}

// Trigger emits a tick of a schedule that a host has declared, as an operator would.
func Trigger(t testing.TB, pool *pgxpool.Pool, name string) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), "select mill.trigger_schedule($1)", name); err != nil {
		t.Fatalf("trigger %s: %v", name, err)
	}
}
