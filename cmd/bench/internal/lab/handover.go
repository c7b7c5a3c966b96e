package lab

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Handover knows, of numbered messages, when the commit of each was called, when
// it had returned, and when its handler started.
type Handover struct {
	called, returned []time.Time
	started          []atomic.Int64 // nanoseconds after base; a second delivery does not count
	base             time.Time
	left             atomic.Int64
	all              chan struct{}
}

// NewHandover expects n messages, numbered from 0.
func NewHandover(n int) *Handover {
	h := &Handover{
		called: make([]time.Time, n), returned: make([]time.Time, n), started: make([]atomic.Int64, n),
		base: time.Now(), all: make(chan struct{}),
	}
	h.left.Store(int64(n))
	return h
}

// Commit takes the times around the call that makes message i durable.
func (h *Handover) Commit(i int, commit func() error) error {
	h.called[i] = time.Now()
	err := commit()
	h.returned[i] = time.Now()
	return err
}

// Handled is called by the handler of message i first of all.
func (h *Handover) Handled(i int) {
	if i < 0 || i >= len(h.started) || !h.started[i].CompareAndSwap(0, int64(time.Since(h.base))) {
		return
	}
	if h.left.Add(-1) == 0 {
		close(h.all)
	}
}

// Wait returns when every message was handled, or with an error after a minute.
func (h *Handover) Wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	select {
	case <-h.all:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d of %d messages were not handled: %w", h.left.Load(), len(h.started), ctx.Err())
	}
}

// Steady sends all messages at rate a second, an open loop: a slow one does not
// hold back the next. The first warm of them do not count. send must call Commit.
func (h *Handover) Steady(ctx context.Context, r *Run, rate, warm int, send func(ctx context.Context, i int) error) error {
	n := len(h.called)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	var sending sync.WaitGroup
	for i := range n {
		if i == warm {
			r.Start()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			sending.Wait()
			return context.Cause(ctx)
		}
		sending.Go(func() {
			if err := send(ctx, i); err != nil {
				cancel(fmt.Errorf("message %d: %w", i, err))
			}
		})
	}
	sending.Wait()
	if err := h.Wait(ctx); err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	r.Stop()
	r.Ops = n - warm
	r.Percentiles("", h.Latencies(warm, n, 1))
	r.Percentiles("call_", h.fromCall(warm, n))
	return nil
}

// Latencies are the times from commit returned to handler started of the messages
// from, from+step, … below to. A handler that started before the commit had
// returned to its caller counts as zero.
func (h *Handover) Latencies(from, to, step int) []time.Duration {
	var all []time.Duration
	for i := from; i < to; i += step {
		all = append(all, max(0, h.at(i).Sub(h.returned[i])))
	}
	return all
}

// fromCall is the same from commit called: the fair one against systems that
// deliver before they confirm.
func (h *Handover) fromCall(from, to int) []time.Duration {
	var all []time.Duration
	for i := from; i < to; i++ {
		all = append(all, h.at(i).Sub(h.called[i]))
	}
	return all
}

func (h *Handover) at(i int) time.Time { return h.base.Add(time.Duration(h.started[i].Load())) }
