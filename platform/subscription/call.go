package subscription

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/internal/claim"
	"github.com/pgmill/pgmill/platform/internal/failpoint"
)

// failed is one failure of the handler. index is the event's in the batch, or -1 if
// the handler did not say which.
type failed struct {
	index  int
	reason platform.Reason
	final  bool
	cause  error
}

// call runs the handler on events. It returns how many of them are done: fewer than
// all without a failure means that the transaction has been open long enough.
// err is the database's trouble, not the handler's. A handler that does not come back
// when its context ends is left behind: its session is closed, its slot is free.
func (h *holder) call(ctx context.Context, u *unit, events []platform.Event) (done int, f *failed, err error) {
	hctx, cancel := context.WithTimeout(ctx, h.sub.Timeout)
	defer cancel()
	failpoint.At("in-handler")
	var at atomic.Int64
	back := make(chan returned, 1)
	go func(conn *pgx.Conn) { back <- h.invoke(hctx, conn, events, &at) }(u.Conn())
	var r returned
	select {
	case r = <-back:
	case <-hctx.Done():
		select {
		case r = <-back:
		case <-time.After(patience):
			u.Abandon()
			h.terminate(ctx, u.pid)
			if ctx.Err() != nil {
				return 0, nil, context.Cause(ctx)
			}
			h.log.Error("a handler ignores its context and was left behind", "pos", events[at.Load()].Pos)
			h.take = max(1, len(events)/2)
			return 0, &failed{index: alone(events, h.indexAt(&at)), reason: platform.ReasonTimeout, cause: errLate}, nil
		}
	}
	done, f = r.done, r.failed
	if f != nil && hctx.Err() != nil && u.Conn().IsClosed() {
		h.terminate(ctx, u.pid) // what it was doing may go on in the server, locks and all
	}
	failpoint.At("after-handler")
	switch {
	case f == nil:
		return done, nil, nil
	case ctx.Err() != nil: // the host is stopping or has lost its lease
		return 0, nil, context.Cause(ctx)
	case f.reason == platform.ReasonTimeout:
		h.take = max(1, len(events)/2)
		return 0, f, nil
	case claim.IsConflict(f.cause):
		if h.clashes++; h.clashes < clashesMax {
			return 0, nil, fmt.Errorf("conflict with another transaction: %w", f.cause)
		}
		f.reason = platform.ReasonConflict
	case u.ended(f.cause):
		if h.clashes++; h.clashes < clashesMax {
			return 0, nil, fmt.Errorf("the handler's connection ended: %w", f.cause)
		}
	}
	return 0, f, nil
}

// patience is how long a handler has to come back after its context ended.
const patience = 300 * time.Millisecond

// returned is what a handler that came back has done.
type returned struct {
	done   int
	failed *failed
}

// invoke calls the author's function; at is the event that it is at.
func (h *holder) invoke(hctx context.Context, conn *pgx.Conn, events []platform.Event, at *atomic.Int64) returned {
	tx := claim.NewTx(conn)
	if h.sub.HandleBatch != nil {
		given := slices.Clone(events) // theirs to sort: ours keep the cursor's order
		if cause := claim.Safely(func() error { return h.sub.HandleBatch(hctx, tx, given) }); cause != nil || !claim.Open(conn) || hctx.Err() != nil {
			return returned{failed: failure(cause, batchIndex(cause, given, events), hctx)}
		}
		return returned{done: len(events)}
	}
	enough := time.Now().Add(h.sub.Timeout / 3)
	for i, e := range events {
		at.Store(int64(i))
		if cause := claim.Safely(func() error { return h.sub.Handle(platform.WithTrace(hctx, e.TraceID), tx, e) }); cause != nil || !claim.Open(conn) || hctx.Err() != nil {
			return returned{i, failure(cause, i, hctx)}
		}
		if i+1 < len(events) && time.Now().After(enough) {
			return returned{done: i + 1}
		}
	}
	return returned{done: len(events)}
}

// indexAt is the event that a handler left behind is at; -1 for a batch.
func (h *holder) indexAt(at *atomic.Int64) int {
	if h.sub.HandleBatch != nil {
		return -1
	}
	return int(at.Load())
}

// terminate ends a session of ours in the server, best effort.
func (h *holder) terminate(ctx context.Context, pid int32) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := claim.Terminate(ctx, h.Control, h.Instance, pid); err != nil {
		h.log.Warn("a session was not ended; it ends by its timeout", "error", err)
	}
}

// clashesMax is how often in a row the database may be the reason before the
// handler is.
const clashesMax = 5

// ended reports whether a handler failed because its session went away. A session
// that ended with a context of the handler's own is the handler's failure.
func (u *unit) ended(cause error) bool {
	switch {
	case claim.IsServer(cause):
		return true
	case !u.Conn().IsClosed() || errors.As(cause, new(*platform.Failure)):
		return false
	}
	return !errors.Is(cause, context.DeadlineExceeded) && !errors.Is(cause, context.Canceled)
}

var (
	errAborted = errors.New("the handler went on after a failed statement, left rows unread, or ended the transaction itself")
	errLate    = errors.New("the handler came back after its timeout")
)

func failure(cause error, index int, hctx context.Context) *failed {
	switch {
	case cause == nil && hctx.Err() != nil:
		cause = errLate
	case cause == nil:
		cause = errAborted
	}
	f := &failed{index: index, reason: platform.ReasonOf(cause), cause: cause}
	var own *platform.Failure
	var p *claim.Panicked
	switch {
	case errors.As(cause, &own):
		f.final = own.Final
	case errors.As(cause, &p):
		f.reason = platform.ReasonPanic
	case hctx.Err() != nil:
		f.reason = platform.ReasonTimeout
	case index == badIndex:
		f.reason = platform.ReasonBadBatch
	case claim.IsDenied(cause):
		f.reason = platform.ReasonPermissionDenied
	}
	return f
}

// badIndex is the index of a BatchError that names no event of the batch.
const badIndex = -2

// batchIndex is where the event that err names is among ours; given is how the
// handler left its slice.
func batchIndex(err error, given, ours []platform.Event) int {
	var b *platform.BatchError
	switch {
	case !errors.As(err, &b):
		return alone(ours, -1)
	case b.Index < 0 || b.Index >= len(given):
		return badIndex
	default:
		return alone(ours, slices.IndexFunc(ours, func(e platform.Event) bool { return e.Pos == given[b.Index].Pos }))
	}
}

// alone is 0 for a batch of one, else index.
func alone(events []platform.Event, index int) int {
	if len(events) == 1 {
		return 0
	}
	return index
}
