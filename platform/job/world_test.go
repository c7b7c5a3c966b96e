package job_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/host"
	"github.com/pgmill/pgmill/platform/platformtest"
)

// none is an input or output without fields.
type none struct{}

// world is a database with hosts on it.
type world struct {
	*testing.T
	dsn  string
	pool *pgxpool.Pool
}

func newWorld(t *testing.T) world {
	t.Helper()
	dsn := platformtest.DSN(t)
	return world{t, dsn, platformtest.Pool(t, dsn)}
}

// host starts a host with these steps.
func (w world) host(steps ...platform.Function) *host.Worker {
	w.Helper()
	return w.hostWith(&host.Worker{}, steps...)
}

func (w world) hostWith(h *host.Worker, steps ...platform.Function) *host.Worker {
	w.Helper()
	h.Database, h.Registry = w.dsn, platform.NewRegistry()
	for _, s := range steps {
		if err := h.Registry.Add(s); err != nil {
			w.Fatal(err)
		}
	}
	return platformtest.HostWith(w, h)
}

func (w world) exec(sql string, args ...any) {
	w.Helper()
	if _, err := w.pool.Exec(w.Context(), sql, args...); err != nil {
		w.Fatalf("%s: %v", sql, err)
	}
}

func ask[T any](w world, sql string, args ...any) T {
	w.Helper()
	rows, err := w.pool.Query(w.Context(), sql, args...)
	if err != nil {
		w.Fatalf("%s: %v", sql, err)
	}
	v, err := pgx.CollectOneRow(rows, pgx.RowTo[T])
	if err != nil {
		w.Fatalf("%s: %v", sql, err)
	}
	return v
}

func (w world) submit(topic, input, options string) string {
	w.Helper()
	return ask[string](w, `select mill.submit_job($1, $2::text::jsonb, $3::text::jsonb)`, topic, input, options)
}

// becomes waits until a job is in a state.
func (w world) becomes(id, state string) {
	w.Helper()
	platformtest.WaitFor(w, w.pool, `select exists (select from mill.jobs where id = $1 and state = $2)`, id, state)
}

// reason is what the view says of a job.
func (w world) reason(id string) string {
	w.Helper()
	return ask[string](w, `select coalesce(reason, '') from mill.jobs where id = $1`, id)
}

// work is a step that calls f.
func work(topic string, f func(ctx context.Context, a *platform.Attempt) error) platform.Step[json.RawMessage, none] {
	return platform.Step[json.RawMessage, none]{Topic: topic, Backoff: time.Millisecond, Run: func(ctx context.Context, a *platform.Attempt, _ json.RawMessage) (none, error) {
		return none{}, f(ctx, a)
	}}
}
