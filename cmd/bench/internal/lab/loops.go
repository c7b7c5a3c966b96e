package lab

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Closed is a closed loop: c clients that each start their next operation when the
// last one is done, n operations in all, numbered from 0. It meters them and
// records how long one took. The first error stops the rest.
//
// Before, every client does a few that do not count, with numbers below 0: they
// prepare statements, plan functions and wake whoever is to be awake. Warm says how
// many.
func (r *Run) Closed(ctx context.Context, n, c int, operation func(ctx context.Context, i int) error) error {
	warm := Warm(c)
	_, err := clients(ctx, warm, c, func(ctx context.Context, i int) error { return operation(ctx, i-warm) })
	if err != nil {
		return err
	}
	r.Start()
	took, err := clients(ctx, n, c, operation)
	r.Stop()
	r.Percentiles("", took)
	return err
}

// Warm is how many operations c clients do before a closed loop counts.
func Warm(c int) int { return 20 * c }

func clients(ctx context.Context, n, c int, operation func(ctx context.Context, i int) error) ([]time.Duration, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	took := make([]time.Duration, n)
	var next atomic.Int64
	var all sync.WaitGroup
	for range c {
		all.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				began := time.Now()
				if err := operation(ctx, i); err != nil {
					cancel(err)
					return
				}
				took[i] = time.Since(began)
			}
		})
	}
	all.Wait()
	return took, context.Cause(ctx)
}

// Percentiles records p50, p95 and p99 in milliseconds, under prefix+"p50_ms" and
// so on. Nothing is recorded of nothing.
func (r *Run) Percentiles(prefix string, took []time.Duration) {
	if len(took) == 0 {
		return
	}
	for name, q := range map[string]float64{"p50_ms": 0.50, "p95_ms": 0.95, "p99_ms": 0.99} {
		r.Set(prefix+name, Millis(Quantile(took, q)))
	}
}

// Quantile is the smallest value that a share q of all does not exceed.
func Quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

// Millis is a duration in milliseconds.
func Millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
