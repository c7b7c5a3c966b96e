package platformtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// patience is how long anything is waited for.
const patience = 20 * time.Second

// WaitFor waits until a query answers true. After 20 s the test fails with the
// query, its last answer and what the views say about what waits. A query that the
// server refuses as wrong fails at once; a lost connection is tried again.
func WaitFor(t testing.TB, pool *pgxpool.Pool, query string, args ...any) {
	t.Helper()
	WaitWithin(t, pool, patience, query, args...)
}

// WaitWithin is WaitFor with a patience of its own.
func WaitWithin(t testing.TB, pool *pgxpool.Pool, d time.Duration, query string, args ...any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	var last string
	for {
		var answer *bool
		err := pool.QueryRow(ctx, query, args...).Scan(&answer)
		switch {
		case err == nil && answer != nil && *answer:
			return
		case wrong(err):
			t.Fatalf("wait for %s %v: %v", query, args, err)
		case err == nil:
			last = show(answer)
		case ctx.Err() == nil:
			last = err.Error()
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			t.Fatalf("waited %v for %s %v; last answer %s\n%s", d, query, args, last, Waiting(pool))
		}
	}
}

// wrong tells a query that no waiting mends from a connection that broke and from
// what has no row yet.
func wrong(err error) bool {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		class := refused.Code[:2]
		return class != "57" && class != "08" && class != "53" && class != "40"
	}
	var scan pgx.ScanArgError
	return errors.As(err, &scan)
}

func show(answer *bool) string {
	if answer == nil {
		return "null"
	}
	return fmt.Sprint(*answer)
}

// Waiting is what mill.subscriptions and mill.why_not_running say, for a test's
// failure.
func Waiting(pool *pgxpool.Pool) string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var b strings.Builder
	for _, q := range []string{
		"select name || '/' || shard, state, position, head, attempts, reason, next_retry_at, instance, blocked_by from mill.subscriptions",
		"select * from mill.why_not_running",
		"select id, live, claims, last_seen from mill.instances",
	} {
		fmt.Fprintf(&b, "%s\n", q)
		rows, err := pool.Query(ctx, q)
		if err == nil {
			_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (struct{}, error) {
				values, err := row.Values()
				fmt.Fprintf(&b, "    %v\n", values)
				return struct{}{}, err
			})
		}
		if err != nil {
			fmt.Fprintf(&b, "    %v\n", err)
		}
	}
	return b.String()
}
