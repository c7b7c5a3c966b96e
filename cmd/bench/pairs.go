package main

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/pgmill/pgmill/cmd/bench/internal/lab"
)

var pairScenarios = func() (all []lab.Scenario) {
	for _, c := range couriers {
		all = append(all, lab.Scenario{
			Name: "pairs:" + c.variant, Note: c.note + "; two messages 50 ms apart, then a rest",
			Defaults: map[string]int{"n": 60}, Run: c.pairs,
		})
	}
	return all
}()

// pairs sends n pairs: a message, one 50 ms later, and a rest that is longer than
// River's poll and never in step with it, so that nothing that follows wakes whoever
// missed the second. That one is compared: p50_ms and so on are its times, first_
// ones the first's.
func (c courier) pairs(ctx context.Context, r *lab.Run) error {
	const warm = 2
	messages := 2 * (warm + r.N())
	h := lab.NewHandover(messages)
	return c.with(ctx, r, h, func(send func(context.Context, int) error) error {
		for i := range messages {
			if i == 2*warm {
				r.Start()
			}
			if err := send(ctx, i); err != nil {
				return err
			}
			rest := 50 * time.Millisecond
			if i%2 == 1 {
				rest = time.Duration(1050+rand.IntN(150)) * time.Millisecond
			}
			select {
			case <-time.After(rest):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if err := h.Wait(ctx); err != nil {
			return err
		}
		r.Stop()
		r.Percentiles("first_", h.Latencies(2*warm, messages, 2))
		r.Percentiles("", h.Latencies(2*warm+1, messages, 2))
		return nil
	})
}
