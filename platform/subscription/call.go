package subscription

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/internal/claim"
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
// err is the database's trouble, not the handler's.
func (h *holder) call(ctx context.Context, u *unit, events []platform.Event) (done int, f *failed, err error) {
	hctx, cancel := context.WithTimeout(ctx, h.sub.Timeout)
	defer cancel()
	failpoint("in-handler")
	tx := claim.NewTx(u.conn.Conn())
	if h.sub.HandleBatch != nil {
		done = len(events)
		if cause := safely(func() error { return h.sub.HandleBatch(hctx, tx, events) }); cause != nil || !u.open() {
			f = failure(cause, batchIndex(cause, len(events)), hctx)
		}
	} else {
		enough := time.Now().Add(h.sub.Timeout / 3)
		for done = 0; done < len(events); done++ {
			if cause := safely(func() error { return h.sub.Handle(hctx, tx, events[done]) }); cause != nil || !u.open() {
				f = failure(cause, done, hctx)
				break
			}
			if done+1 < len(events) && time.Now().After(enough) {
				return done + 1, nil, nil
			}
		}
	}
	failpoint("after-handler")
	switch {
	case f == nil:
		return done, nil, nil
	case ctx.Err() != nil: // the host is stopping or has lost its lease
		return 0, nil, context.Cause(ctx)
	case f.reason == platform.ReasonTimeout:
		h.take = max(1, len(events)/2)
		return 0, f, nil
	case claim.IsServer(f.cause) || u.conn.Conn().IsClosed() && !errors.As(f.cause, new(*platform.Failure)):
		return 0, nil, fmt.Errorf("the handler's connection ended: %w", f.cause)
	case claim.IsConflict(f.cause):
		if h.clashes++; h.clashes < 5 {
			return 0, nil, fmt.Errorf("conflict with another transaction: %w", f.cause)
		}
		f.reason = platform.ReasonConflict
	}
	return 0, f, nil
}

// open reports whether the transaction is still open and healthy.
func (u *unit) open() bool { return u.conn.Conn().PgConn().TxStatus() == 'T' }

var errAborted = errors.New("the handler went on after a failed statement, or ended the transaction itself")

func failure(cause error, index int, hctx context.Context) *failed {
	if cause == nil {
		cause = errAborted
	}
	f := &failed{index: index, reason: platform.ReasonOf(cause), cause: cause}
	var own *platform.Failure
	var p *panicked
	switch {
	case errors.As(cause, &own):
		f.final = own.Final
	case errors.As(cause, &p):
		f.reason = platform.ReasonPanic
	case hctx.Err() != nil:
		f.reason = platform.ReasonTimeout
	}
	return f
}

func batchIndex(err error, n int) int {
	var b *platform.BatchError
	if errors.As(err, &b) && b.Index >= 0 && b.Index < n {
		return b.Index
	}
	if n == 1 {
		return 0
	}
	return -1
}

// panicked is a handler's panic as an error; its text goes to the redacting log.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("panic: %v\n%s", p.value, p.stack) }

func safely(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicked{v, debug.Stack()}
		}
	}()
	return f()
}
