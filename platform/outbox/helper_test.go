package outbox_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/platformtest"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

type db = pgtest.DB

func must(t testing.TB, db db, query string, args ...any) {
	t.Helper()
	pgtest.Exec(t, db, query, args...)
}

func ask[T any](t testing.TB, db db, query string, args ...any) T {
	t.Helper()
	return pgtest.Ask[T](t, db, query, args...)
}

func session(t testing.TB, dsn string, options ...string) *pgx.Conn {
	t.Helper()
	return pgtest.Session(t, dsn, options...)
}

// emit records one event in the transaction of db and returns its id.
func emit(t testing.TB, db db, name string) int64 {
	t.Helper()
	return ask[int64](t, db, `select mill.emit('order.placed', $1)`, name)
}

func advance(t testing.TB, db db) int64 {
	t.Helper()
	return ask[int64](t, db, `select pgmill.advance()`)
}

// positions are the events' targets in the order of the log.
func positions(t testing.TB, db db) []string {
	t.Helper()
	return ask[[]string](t, db, `select coalesce(array_agg(e.target order by l.pos), '{}') from pgmill.log l join pgmill.event e on e.id = l.event_id`)
}

func wantPositions(t testing.TB, db db, when string, want ...string) {
	t.Helper()
	if got := positions(t, db); !slices.Equal(got, want) {
		t.Errorf("%s: the log is %q, want %q", when, got, want)
	}
}

// seen is a subscription that writes down which event it got, on a table without
// a key: what comes twice is there twice.
func seen(t testing.TB, pool *pgxpool.Pool, change func(*platform.Subscription)) platform.Subscription {
	t.Helper()
	must(t, pool, `create table if not exists seen (event bigint, pos bigint, target text)`)
	s := platform.Subscription{
		Name: "test.seen", Events: []string{"order.*"}, Owners: platform.OwnedBy("test"), From: platform.FromZero,
		Handle: func(ctx context.Context, tx pgx.Tx, e platform.Event) error {
			_, err := tx.Exec(ctx, `insert into seen values ($1, $2, $3)`, e.ID, e.Pos, e.Target)
			return err
		},
	}
	if change != nil {
		change(&s)
	}
	return s
}

// wantSeen waits until the subscription has handled exactly these events, each once.
func wantSeen(t testing.TB, pool *pgxpool.Pool, when string, want ...string) {
	t.Helper()
	platformtest.WaitFor(t, pool, `select count(*) >= $1 from seen`, len(want))
	got := ask[[]string](t, pool, `select coalesce(array_agg(target order by pos), '{}') from seen`)
	if !slices.Equal(got, want) {
		t.Errorf("%s: handled %q, want %q", when, got, want)
	}
}

// soak skips what takes minutes unless it is asked for.
func soak(t testing.TB) {
	t.Helper()
	if os.Getenv("PGMILL_SOAK") == "" {
		t.Skip("takes minutes; set PGMILL_SOAK=1")
	}
}

func name(i int) string { return fmt.Sprintf("e%d", i) }
