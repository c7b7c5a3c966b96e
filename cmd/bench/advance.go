package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/cmd/bench/internal/lab"
)

var advanceScenarios = []lab.Scenario{
	{Name: "advance:backlog", Note: "events from transactions of 10, positioned in pieces",
		Defaults: map[string]int{"n": 1_000_000}, Run: advance(0)},
	{Name: "advance:steps", Note: "the same, a call each 2,000 events; only the calls are timed",
		Defaults: map[string]int{"n": 200_000}, Run: advance(2_000)},
}

// advance times pgmill.advance() over n events; portion is how many lie there at
// each call, 0 for all.
func advance(portion int) func(context.Context, *lab.Run) error {
	return func(ctx context.Context, r *lab.Run) error {
		dsn, err := migrated(ctx, r)
		if err != nil {
			return err
		}
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return err
		}
		defer conn.Close(ctx)                                                //nolint:errcheck // nothing is lost
		if _, err := conn.Exec(ctx, "select pgmill.advance()"); err != nil { // plans are made once a session
			return err
		}
		size := r.N()
		if portion > 0 {
			size = min(size, portion)
		}
		var sum time.Duration
		var calls []time.Duration
		r.Start()
		for done := 0; done < r.N(); done += size {
			if err := fill(ctx, dsn, "pgmill.event", size, 10); err != nil {
				return err
			}
			if portion == 0 { // only the call counts
				if _, err := conn.Exec(ctx, "vacuum analyze pgmill.event"); err != nil {
					return err
				}
				r.Start()
			}
			got := 0
			for more := true; more; { // a big step is taken in pieces
				began := time.Now()
				var n int
				if err := conn.QueryRow(ctx, "select pgmill.advance()").Scan(&n); err != nil {
					return err
				}
				calls = append(calls, time.Since(began))
				sum += calls[len(calls)-1]
				got += n
				more = n > 0 && got < size
			}
			if got != size {
				return fmt.Errorf("advance gave %d positions to %d events", got, size)
			}
		}
		r.StopAfter(sum)
		r.Percentiles("call_", calls)
		return nil
	}
}
