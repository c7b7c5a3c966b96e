package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/cmd/bench/internal/lab"
	"github.com/pgmill/pgmill/platform"
)

var nothingScenarios = []lab.Scenario{
	{Name: "subscribe:pgmill_nothing", Note: "subscriptions that no event concerns: us_per_event is for an event and a subscription; more than 5,000 events",
		Defaults: map[string]int{"n": 1_000_000, "subs": 1}, Run: passNothing},
}

// passNothing times how long subscriptions take to get past n events that they do
// not listen to. The host is up and idle before; the events get their positions in
// one step, whose lock is held meanwhile so that the host cannot begin early.
func passNothing(ctx context.Context, r *lab.Run) error {
	dsn, err := migrated(ctx, r)
	if err != nil {
		return err
	}
	var subs []platform.Subscription
	for i := range r.Param("subs") {
		subs = append(subs, noop(fmt.Sprintf("bench.nothing_%d", i), "nothing.of.this"))
	}
	stop, err := startHost(ctx, dsn, subs...)
	if err != nil {
		return err
	}
	defer stop()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx) //nolint:errcheck // nothing is lost
	if _, err := conn.Exec(ctx, "select pg_advisory_lock(1886219628, 1)"); err != nil {
		return err
	}
	if err := fill(ctx, dsn, "pgmill.event", r.N(), 10); err != nil {
		return err
	}
	for _, q := range []string{"vacuum analyze pgmill.event", "checkpoint"} {
		if _, err := conn.Exec(ctx, q); err != nil {
			return err
		}
	}
	if err := position(ctx, conn, r.N()); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "select pg_advisory_unlock(1886219628, 1), pg_notify('pgmill', '')"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	// What concerns nobody wakes nobody: it is passed at the next poll. The clock
	// is for the passing.
	err = until(ctx, conn, `select exists (select from pgmill.river_job) or exists (select from pgmill.cursor where pos > 0)`)
	if err != nil {
		return err
	}
	r.Start()
	began := time.Now()
	err = until(ctx, conn, `select min(pos) >= $1 from (select max(pos) as pos from pgmill.cursor group by subscription) c`, r.N())
	if err != nil {
		return err
	}
	r.Stop()
	r.Ops = r.N() * len(subs)
	r.Set("us_per_event", float64(time.Since(began).Microseconds())/float64(r.Ops))
	r.Set("rss_mb", rssMB())
	return nil
}

// until asks each two milliseconds.
func until(ctx context.Context, conn *pgx.Conn, question string, args ...any) error {
	for {
		var yes bool
		if err := conn.QueryRow(ctx, question, args...).Scan(&yes); yes || err != nil {
			return err
		}
		if err := rest(ctx, 2*time.Millisecond); err != nil {
			return err
		}
	}
}

// rssMB is the most memory that this process has had resident.
func rssMB() float64 { return lab.MemoryMB(os.Getpid(), "VmHWM") }
