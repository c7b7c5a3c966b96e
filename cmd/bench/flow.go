package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/cmd/bench/internal/lab"
	"github.com/pgmill/pgmill/platform"
)

const stall = 30 * time.Second

// flow is told of every handler call and times from the first to the last: the
// same clock for a host and for a loop by hand.
type flow struct {
	mu      sync.Mutex
	want    int // events until done
	seen    int
	first   time.Time
	latest  time.Time
	last    int // events of the latest call: the clock does not see its end
	events  int // that the clocks of all rounds saw
	elapsed time.Duration
	gaps    []time.Duration // between calls
	done    chan struct{}
}

func (f *flow) expect(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.want, f.seen, f.last, f.done = n, 0, 0, make(chan struct{})
}

// call is the first thing a handler does, with the number of events it got.
func (f *flow) call(n int) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seen == 0 {
		f.first = now
	} else {
		f.gaps = append(f.gaps, now.Sub(f.latest))
	}
	f.seen += n
	f.latest, f.last = now, n
	if f.seen >= f.want && f.seen-n < f.want {
		f.events += f.seen - n
		f.elapsed += now.Sub(f.first)
		close(f.done)
	}
}

// wait returns when the handlers got all, or with an error when they have got
// nothing for half a minute.
func (f *flow) wait(ctx context.Context) error {
	stalled := time.NewTicker(stall)
	defer stalled.Stop()
	for before, over := -1, false; !over; {
		select {
		case <-f.done:
			over = true
		case <-ctx.Done():
			over = true
		case <-stalled.C:
			f.mu.Lock()
			over, before = f.seen == before, f.seen
			f.mu.Unlock()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seen < f.want {
		return errors.Join(ctx.Err(), fmt.Errorf("handlers got %d of %d events, then no more", f.seen, f.want))
	}
	if f.seen > f.want {
		return fmt.Errorf("handlers got %d events, not %d", f.seen, f.want)
	}
	return nil
}

// report ends the run's clock with what the flow's clock saw.
func (f *flow) report(r *lab.Run) error {
	if f.events == 0 {
		return fmt.Errorf("one batch held all %d events: n is too small to measure", f.want)
	}
	r.Ops = f.events
	r.StopAfter(f.elapsed)
	r.Percentiles("call_", f.gaps)
	return nil
}

const (
	projectionTable = `create table projection (pos bigint primary key, data jsonb not null)`
	addMany         = `insert into projection (pos, data) select p, d::jsonb from unnest($1::bigint[], $2::text[]) as e(p, d)`
	addOne          = `insert into projection (pos, data) values ($1, $2::text::jsonb)`
)

func columns(events []platform.Event) (positions []int64, data []string) {
	positions, data = make([]int64, len(events)), make([]string, len(events))
	for i, e := range events {
		positions[i], data[i] = e.Pos, string(e.Data)
	}
	return positions, data
}

func addEvent(ctx context.Context, tx pgx.Tx, e platform.Event) error {
	_, err := tx.Exec(ctx, addOne, e.Pos, string(e.Data))
	return err
}

// bench is a subscription to all the events there are and will be.
func bench(name, events string) platform.Subscription {
	return platform.Subscription{Name: name, Events: []string{events}, Owners: platform.OwnedBy("bench"), From: platform.FromZero, Replayable: true}
}

// noop does nothing with what it gets.
func noop(name, events string) platform.Subscription {
	s := bench(name, events)
	s.HandleBatch = func(context.Context, pgx.Tx, []platform.Event) error { return nil }
	return s
}
