package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/cmd/bench/internal/lab"
	"github.com/pgmill/pgmill/platform"
)

var longScenarios = []lab.Scenario{
	{Name: "long:cold", Note: "n events behind, a cold cursor: batches of the first and the last tenth, memory",
		Defaults: map[string]int{"n": 10_000_000}, Run: cold},
	{Name: "long:pinned", Note: "a REPEATABLE READ transaction held open while rate events/s flow for secs: first and last tenth",
		Defaults: map[string]int{"secs": 60, "rate": 500}, Run: pinned},
	{Name: "long:unpinned", Note: "the same without it: what else changes over time",
		Defaults: map[string]int{"secs": 60, "rate": 500}, Run: unpinned},
}

// cold is a subscription that begins n events behind.
func cold(ctx context.Context, r *lab.Run) error {
	_, f, stop, err := caughtUp(ctx, r, "bench.cold")
	if err != nil {
		return err
	}
	defer stop()
	tenths(r, f.gaps)
	r.Set("rss_mb", rssMB())
	return f.report(r)
}

// caughtUp is a host whose one subscription, which does nothing, has just handled the n
// events that it was behind.
func caughtUp(ctx context.Context, r *lab.Run, name string) (dsn string, f *flow, stop func(), err error) {
	if dsn, err = migrated(ctx, r); err != nil {
		return "", nil, nil, err
	}
	if err := backlog(ctx, dsn, r.N()); err != nil {
		return "", nil, nil, err
	}
	f = &flow{}
	f.expect(r.N())
	sub := bench(name, ordersPlaced)
	sub.HandleBatch = func(_ context.Context, _ pgx.Tx, events []platform.Event) error {
		f.call(len(events))
		return nil
	}
	r.Start()
	if stop, err = startHost(ctx, dsn, sub); err != nil {
		return "", nil, nil, err
	}
	if err := f.wait(ctx); err != nil {
		stop()
		return "", nil, nil, err
	}
	return dsn, f, stop, nil
}

// tenths records the first and the last tenth of what was timed, and how much the
// last is of the first.
func tenths(r *lab.Run, took []time.Duration) {
	tenth := max(1, len(took)/10)
	if len(took) < 2 {
		return
	}
	first, last := took[:tenth], took[len(took)-tenth:]
	r.Percentiles("first_", first)
	r.Percentiles("last_", last)
	for name, q := range map[string]float64{"p50_last_of_first": 0.50, "p99_last_of_first": 0.99} {
		if at := lab.Quantile(first, q); at > 0 {
			r.Set(name, float64(lab.Quantile(last, q))/float64(at))
		}
	}
}

func pinned(ctx context.Context, r *lab.Run) error {
	return even(ctx, r, func(dsn string) (func(), error) {
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return nil, err
		}
		tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		if err != nil {
			return nil, err
		}
		var one int
		err = tx.QueryRow(ctx, "select 1").Scan(&one) // the snapshot is of now
		return func() { _ = conn.Close(context.WithoutCancel(ctx)) }, err
	})
}

func unpinned(ctx context.Context, r *lab.Run) error {
	return even(ctx, r, func(string) (func(), error) { return func() {}, nil })
}

// even sends rate events a second for secs, with whatever hold holds in place, and
// compares the first tenth of the times from commit to handler with the last. An
// event waits for the batch before its own, so the time of batches is in it.
func even(ctx context.Context, r *lab.Run, hold func(dsn string) (release func(), err error)) error {
	rate := r.Param("rate")
	warm := 5 * rate
	n := rate * r.Param("secs")
	h := lab.NewHandover(warm + n)
	c := courier{open: openPgmill}
	return c.with(ctx, r, h, func(send func(context.Context, int) error) error {
		dsn, err := r.DSN()
		if err != nil {
			return err
		}
		release, err := hold(dsn)
		if err != nil {
			return err
		}
		defer release()
		if err := h.Steady(ctx, r, rate, warm, send); err != nil {
			return err
		}
		tenths(r, h.Latencies(warm, warm+n, 1))
		r.Set("rss_mb", rssMB())
		return nil
	})
}
