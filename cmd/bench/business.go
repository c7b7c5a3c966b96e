package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/cmd/bench/internal/lab"
	"github.com/pgmill/pgmill/platform"
)

const (
	businessTable = `create table business (id bigint generated always as identity primary key, customer int not null, amount int not null)`
	addBusiness   = `insert into business (customer, amount) values ($1, $2)`

	// What one writes by hand: pgmill.event's columns, defaults and indexes in a
	// plain table.
	handSequence = `create sequence hand_event_id`
	handTable    = `create table hand_event (
		id bigint primary key default nextval('hand_event_id'),
		xid xid8 not null default pg_current_xact_id(),
		emitted_at timestamptz not null default clock_timestamp(),
		scope text not null default 'install', type text not null, target text not null,
		key text, trace_id text, data jsonb not null default '{}')`
	handIndex = `create index hand_event_xid on hand_event (xid)`
	addHand   = `insert into hand_event (type, target, data) values ($1, $2, $3::text::jsonb)`

	ordersPlaced = "orders.placed"
)

// order is what an event points to.
type order struct {
	Order  int `json:"order"`
	Amount int `json:"amount"`
}

func target(i int) string { return fmt.Sprintf("order-%d", i) }

func placed(i int) platform.NewEvent {
	return platform.NewEvent{Type: ordersPlaced, Target: target(i), Data: order{Order: i, Amount: i % 1000}}
}

func placedByHand(i int) []any {
	return []any{ordersPlaced, target(i), fmt.Sprintf(`{"order":%d,"amount":%d}`, i, i%1000)}
}

// migrated is a fresh migrated database with the tables that emitters use besides,
// and its partitions made, as the first host would.
func migrated(ctx context.Context, r *lab.Run) (dsn string, err error) {
	dsn, err = r.Fresh(ctx, lab.TemplateDB)
	if err != nil {
		return "", err
	}
	return dsn, once(ctx, dsn, businessTable, handSequence, handTable, handIndex, "select pgmill.make_partitions()")
}

// opened is migrated with connections to it.
func opened(ctx context.Context, r *lab.Run, conns int) (dsn string, pool *pgxpool.Pool, err error) {
	if dsn, err = migrated(ctx, r); err == nil {
		pool, err = lab.Pool(ctx, dsn, conns, nil)
	}
	return dsn, pool, err
}

// once runs statements on a connection of their own.
func once(ctx context.Context, dsn string, statements ...string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx) //nolint:errcheck // nothing is lost
	for _, q := range statements {
		if _, err := conn.Exec(ctx, q); err != nil {
			return fmt.Errorf("%.60s: %w", q, err)
		}
	}
	return nil
}

// expectRows is an error if a table does not hold n rows: a run that lost some did
// not do what it was timed for.
func expectRows(ctx context.Context, pool *pgxpool.Pool, table string, n int) error {
	var got int
	if err := pool.QueryRow(ctx, "select count(*) from "+table).Scan(&got); err != nil {
		return err
	}
	if got != n {
		return fmt.Errorf("%s has %d rows, not %d", table, got, n)
	}
	return nil
}
