package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/cmd/bench/internal/lab"
)

// courier is one way to hand numbered messages over: open starts the receiving
// side, which calls handled, and returns how one is put into a transaction.
type courier struct {
	variant, note string
	open          func(ctx context.Context, dsn string, pool *pgxpool.Pool, handled func(i int)) (put putFunc, stop func(), err error)
}

type putFunc func(ctx context.Context, tx pgx.Tx, i int) error

var couriers = []courier{
	{"pgmill", "Emit, a subscription with Handle", openPgmill},
	{"pgmill_job", "Enqueue, a step with Run", openJob},
	{"river_tuned", "River, FetchCooldown 1 ms, poll 20 ms", openRiver(riverTuned)},
	{"river_stock", "River as it comes", openRiver(riverTuning{})},
	{"notify_claim", "a row and a NOTIFY, then claim and delete: the floor", openNotifyClaim},
}

var latencyScenarios = func() (all []lab.Scenario) {
	for _, c := range couriers {
		all = append(all, lab.Scenario{
			Name: "latency:" + c.variant, Note: c.note + "; open loop, warm",
			Defaults: map[string]int{"n": 1000, "rate": 100}, Run: c.steady,
		})
	}
	return all
}()

// steady is n messages at an even rate after two seconds of the same.
func (c courier) steady(ctx context.Context, r *lab.Run) error {
	warm := 2 * r.Param("rate")
	h := lab.NewHandover(warm + r.N())
	return c.with(ctx, r, h, func(send func(context.Context, int) error) error {
		return h.Steady(ctx, r, r.Param("rate"), warm, send)
	})
}

// with opens the courier on a fresh database, waits until it is warm, and gives use
// a way to send: begin, put, and a commit that h takes the times of.
func (c courier) with(ctx context.Context, r *lab.Run, h *lab.Handover, use func(send func(context.Context, int) error) error) error {
	dsn, pool, err := opened(ctx, r, 16)
	if err != nil {
		return err
	}
	defer pool.Close()
	put, stop, err := c.open(ctx, dsn, pool, h.Handled)
	if err != nil {
		return err
	}
	defer stop()
	time.Sleep(time.Second) // elections, first claims
	return use(func(ctx context.Context, i int) error {
		tx, err := pool.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback(ctx) //nolint:errcheck // nothing after a commit
		if err := put(ctx, tx, i); err != nil {
			return err
		}
		return h.Commit(i, func() error { return tx.Commit(ctx) })
	})
}

func openPgmill(ctx context.Context, dsn string, _ *pgxpool.Pool, handled func(int)) (putFunc, func(), error) {
	stop, err := startHost(ctx, dsn, orders(handled))
	return putOrder, stop, err
}

func openRiver(t riverTuning) func(context.Context, string, *pgxpool.Pool, func(int)) (putFunc, func(), error) {
	return func(ctx context.Context, _ string, pool *pgxpool.Pool, handled func(int)) (putFunc, func(), error) {
		if err := riverMigrate(ctx, pool); err != nil {
			return nil, nil, err
		}
		client, err := riverClient(pool, t, handled)
		if err != nil {
			return nil, nil, err
		}
		if err := client.Start(ctx); err != nil {
			return nil, nil, err
		}
		return func(ctx context.Context, tx pgx.Tx, i int) error {
			_, err := client.InsertTx(ctx, tx, riverOrder{order{Order: i}}, nil)
			return err
		}, func() { _ = client.Stop(context.WithoutCancel(ctx)) }, nil
	}
}

// openNotifyClaim is the least that hands over durably in Postgres.
func openNotifyClaim(ctx context.Context, dsn string, pool *pgxpool.Pool, handled func(int)) (putFunc, func(), error) {
	if err := once(ctx, dsn, `create table message (id bigint generated always as identity primary key, no int not null)`); err != nil {
		return nil, nil, err
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, nil, err
	}
	if _, err := conn.Exec(ctx, "listen message"); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing is lost
		for {
			if _, err := conn.WaitForNotification(ctx); err != nil {
				return
			}
			rows, err := pool.Query(ctx, `delete from message where id in (select id from message order by id limit 100 for update skip locked) returning no`)
			if err != nil {
				return
			}
			numbers, err := pgx.CollectRows(rows, pgx.RowTo[int])
			if err != nil {
				return
			}
			for _, no := range numbers {
				handled(no)
			}
		}
	}()
	return func(ctx context.Context, tx pgx.Tx, i int) error {
		_, err := tx.Exec(ctx, "with m as (insert into message (no) values ($1) returning no) select pg_notify('message', '') from m", i)
		return err
	}, func() { cancel(); <-done }, nil
}
