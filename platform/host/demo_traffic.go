package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// What `host serve --demo` does beside its work: a slow trickle, in slices so that a
// killed host leaves no pgbench behind for long.
const (
	trickleClients = 2
	trickleRate    = 20 // transactions a second
	trickleSlice   = 20 * time.Second
	trickleScale   = 8 // what `host demo` wants by default
	trickleRest    = 3 * time.Second
)

// runDemoTraffic lets pgbench move a little money until ctx ends, so that a newcomer
// sees mill.subscriptions move. A slice that fails is logged and tried again. An
// error means that there can be no traffic at all; the host is well without it.
func runDemoTraffic(ctx context.Context, cfg Config, log *slog.Logger) error {
	d, err := openDemo(ctx, cfg)
	if err != nil {
		return err
	}
	defer d.pool.Close()
	ready := false
	for ctx.Err() == nil {
		if !ready {
			_, err = d.prepare(ctx, trickleScale, false, func(demoLag) {})
			if ready = err == nil; ready {
				log.Info("demo traffic runs", "schema", demoSchema, "per_second", trickleRate)
			}
		}
		if ready {
			_, err = d.pgbench.run(ctx, int(trickleSlice.Seconds()), trickleClients, trickleRate)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errNotDemos):
			return err
		case err != nil: // a restarted database, or tables made anew by `host demo`
			ready = false
			log.Warn("demo traffic rests", "err", err)
			select {
			case <-time.After(trickleRest):
			case <-ctx.Done():
			}
		}
	}
	return nil
}

// openDemo finds what a demo needs; the caller closes the pool. It goes past a
// pooler, for DDL and for pgbench's search_path.
func openDemo(ctx context.Context, cfg Config) (*demo, error) {
	path, err := findPgbench()
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.New(ctx, cfg.Direct())
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	pooled, err := isPooled(ctx, pool)
	switch {
	case err != nil:
		pool.Close()
		return nil, fmt.Errorf("open the database: %w", err)
	case pooled:
		pool.Close()
		return nil, errDemoPooled
	}
	return &demo{pool: pool, pgbench: pgbench{path: path, dsn: cfg.Direct(), schema: demoSchema}}, nil
}

var errDemoPooled = errors.New("pgbench sets a search_path, which is lost behind a pooler: set PGMILL_LISTEN_URL to the same database past it")
