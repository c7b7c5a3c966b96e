package claim_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/pgmill/pgmill/platform/pg.(*Private).watch"))
}

const patience = 20 * time.Second

// querier is a pool, a connection or a transaction.
type querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func exec(t *testing.T, on querier, sql string, args ...any) {
	t.Helper()
	if _, err := on.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func one[T any](t *testing.T, on querier, sql string, args ...any) T {
	t.Helper()
	var got T
	if err := on.QueryRow(t.Context(), sql, args...).Scan(&got); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return got
}

// hears waits for a value.
func hears[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("waited %v for %s", patience, what)
		panic("not reached")
	}
}

// put inserts a claim as pgmill.derive_claims does, and returns its id.
func put(t *testing.T, on querier, kind string) int64 {
	t.Helper()
	return one[int64](t, on, `insert into pgmill.river_job (args, kind, queue, max_attempts) values ('{"n": 1}', $1, 'subscription', 1) returning id`, kind)
}
