package host

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/pg"
)

// lagEvery is how often what the database knows is put in the metrics.
const lagEvery = 5 * time.Second

// watchLag keeps pgmill_subscription_lag_events and pgmill_dead_letters_last_hour current
// until ctx ends. What it cannot read it leaves as it was; /readyz says that the database is away.
func (w *Worker) watchLag(ctx context.Context, pool *pgxpool.Pool) error {
	var names []string
	for _, s := range platform.Of[platform.Subscription](w.Registry) {
		names = append(names, s.Name)
	}
	behind := map[string]bool{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lagEvery):
		}
		w.watchDead(ctx, pool)
		rows, err := pool.Query(ctx, sqlBehind, names)
		if err != nil {
			continue
		}
		still := map[string]bool{}
		var name string
		var lag int64
		if _, err := pgx.ForEachRow(rows, []any{&name, &lag}, func() error {
			w.metrics.LagOf(name, lag)
			still[name] = true
			return nil
		}); err != nil {
			if ctx.Err() == nil {
				w.Log.Debug("lag not read", "error", err)
			}
			continue
		}
		for name := range behind {
			if !still[name] {
				w.metrics.LagOf(name, 0)
			}
		}
		behind = still
	}
}

// watchDead counts the dead letters of the last hour.
func (w *Worker) watchDead(ctx context.Context, pool *pgxpool.Pool) {
	rows, err := pool.Query(ctx, sqlDead)
	if err != nil {
		return
	}
	counts := map[string]int64{}
	var state string
	var n int64
	if _, err := pgx.ForEachRow(rows, []any{&state, &n}, func() error { counts[state] = n; return nil }); err == nil {
		w.metrics.DeadLetters(counts)
	}
}

// sqlDead reads the newest by the index dead_letter_died.
const sqlDead = `
	select lower(d.state), count(*)
	  from (select l.state from pgmill.dead_letter l where l.died_at > now() - interval '1 hour' order by l.died_at desc limit 10000) d
	 group by 1`

// sqlBehind leaves out whoever has no lag, first of all the dormant: thousands, where
// there are thousands of schedules.
const sqlBehind = `
	select name, sum(lag_events)::bigint from mill.subscriptions
	 where name = any(array(select s.name from pgmill.subscription s where not s.dormant and s.name = any($1)))
	 group by name having sum(lag_events) > 0`

// orphans tells at the start which functions the database knows and no live host,
// this one included, has (X10). Those it did not know are declared by now.
func (w *Worker) orphans(ctx context.Context, pool *pgxpool.Pool) {
	rows, err := pool.Query(ctx, "select name from mill.functions where live_hosts = 0 order by name limit 20")
	if err != nil {
		return
	}
	if names, err := pgx.CollectRows(rows, pgx.RowTo[string]); err == nil && len(names) > 0 {
		w.Log.Warn("functions that the database knows and no live host has", "functions", names)
	}
	if names, err := pg.UnknownModules(ctx, pool, w.Registry.Modules()); err == nil && len(names) > 0 {
		w.Log.Warn("modules that the database has and this build has not", "modules", names)
	}
}
