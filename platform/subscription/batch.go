package subscription

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/internal/claim"
)

// batch reads the next events and handles them, optimistically all in one
// transaction; one at a time while something is wrong with the shard.
func (h *holder) batch(ctx context.Context) error {
	take := h.take
	if h.alone() {
		take = 1
	}
	upto := min(h.end(), h.scanned+window)
	started := time.Now()
	u, events, err := h.begin(ctx, func(b *pgx.Batch) {
		b.Queue(sqlRead, h.scanned, upto, take, h.st.Likes, h.st.Shards, h.no, h.st.ByKey)
	})
	if err != nil {
		return err
	}
	return h.work(ctx, u, events, take, upto, started)
}

// alone reports whether something is wrong with the shard, so that its events are
// handled one at a time.
func (h *holder) alone() bool { return h.st.FailingPos > 0 || h.st.SuspectLeft > 0 }

// work handles the events that were read with the open transaction: at most take,
// and all there are up to upto if they are fewer.
func (h *holder) work(ctx context.Context, u *unit, events []platform.Event, take int, upto int64, started time.Time) error {
	to := upto
	if len(events) == take {
		to = events[len(events)-1].Pos
	}
	events = h.unparked(events)
	if len(events) == 0 { // nothing for the handler up to there
		u.Rollback()
		h.scanned = to
		if to-h.st.Pos >= window {
			return h.move(ctx, to)
		}
		return nil
	}
	if h.alone() {
		u.Rollback()
		return h.one(ctx, events[0], h.attempts(events[0]))
	}
	h.eager = true
	f, err := h.handle(ctx, u, events, to, 0, started)
	if err != nil || f == nil {
		return err
	}
	return h.isolate(ctx, events, f)
}

// unparked leaves out the events whose key is parked: they wait in the log.
func (h *holder) unparked(events []platform.Event) []platform.Event {
	if len(h.parked) == 0 {
		return events
	}
	kept := events[:0]
	for _, e := range events {
		if !h.parked[h.orderKey(e)] {
			kept = append(kept, e)
		}
	}
	return kept
}

// orderKey is what pgmill.order_key answers for an event.
func (h *holder) orderKey(e platform.Event) string {
	k := e.Key
	if k == "" || !h.st.ByKey {
		k = e.Target
	}
	if e.Scope == "install" {
		return k
	}
	return e.Scope + " " + k
}

// handle runs the handler on events in the open transaction and settles it with the
// cursor at to, or rolls it back and says what failed.
func (h *holder) handle(ctx context.Context, u *unit, events []platform.Event, to int64, passed int32, started time.Time) (*failed, error) {
	done, f, err := h.call(ctx, u, events)
	if err != nil || f != nil {
		u.Rollback()
		return f, err
	}
	if done < len(events) {
		to = events[done-1].Pos
	}
	if err := h.settle(ctx, u, to, passed); err != nil {
		return h.uncommitted(ctx, err, len(events))
	}
	h.clashes = 0
	if done == h.take {
		h.take = min(2*h.take, h.sub.Batch)
	}
	if done < len(events) {
		h.scanned = to // the rest is read again
	}
	if h.Observe.Handled != nil {
		h.Observe.Handled(done, time.Since(started))
	}
	return nil, nil
}

// uncommitted tells a commit that the handler's writes made fail (a deferred
// constraint, say) from trouble and from a lost claim.
func (h *holder) uncommitted(ctx context.Context, err error, n int) (*failed, error) {
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case claim.IsSQL(err) && !claim.IsLost(err) && !claim.IsServer(err) && !claim.IsConflict(err):
		index := -1
		if n == 1 {
			index = 0
		}
		return &failed{index: index, reason: platform.ReasonCommitFailed, cause: err}, nil
	default:
		return nil, err
	}
}

// isolate gets past a batch's failing event: the events before it as a batch, then
// one event a transaction until the failing one is passed or written down.
func (h *holder) isolate(ctx context.Context, events []platform.Event, f *failed) error {
	tries := int32(0)
	if f.index >= 0 {
		if f.index > 0 {
			pf, err := h.again(ctx, events[:f.index])
			if err != nil {
				return err
			}
			if pf != nil { // the events before fail too: search from the start
				h.batchFailed(f.index, pf)
				return h.oneByOne(ctx, events[:f.index])
			}
			if h.st.Pos < events[f.index-1].Pos { // it was slow this time and settled early: read on
				return nil
			}
		}
		tries = 1
		h.failedOnce(events[f.index], f)
		if f.final || tries >= h.st.MaxAttempts {
			return h.fail(ctx, events[f.index], tries, f)
		}
		return h.one(ctx, events[f.index], tries)
	}
	h.batchFailed(len(events), f)
	return h.oneByOne(ctx, events)
}

func (h *holder) oneByOne(ctx context.Context, events []platform.Event) error {
	for _, e := range events {
		if err := h.one(ctx, e, h.attempts(e)); err != nil {
			return err
		}
		if h.parked[h.orderKey(e)] {
			return nil // it was the failing one; read on past it
		}
	}
	return nil
}

// again runs events whose transaction was rolled back in a new one.
func (h *holder) again(ctx context.Context, events []platform.Event) (*failed, error) {
	started := time.Now()
	u, _, err := h.begin(ctx, nil)
	if err != nil {
		return nil, err
	}
	return h.handle(ctx, u, events, events[len(events)-1].Pos, 0, started)
}

// one runs one event alone. tries is how often it failed before.
func (h *holder) one(ctx context.Context, e platform.Event, tries int32) error {
	passed := int32(0)
	if h.alone() {
		passed = 1
	}
	if h.st.SuspectLeft > 0 {
		if err := h.note(ctx, e); err != nil {
			return err
		}
	}
	started := time.Now()
	u, _, err := h.begin(ctx, nil)
	if err != nil {
		return err
	}
	f, err := h.handle(ctx, u, []platform.Event{e}, e.Pos, passed, started)
	if err != nil || f == nil {
		return err
	}
	h.failedOnce(e, f)
	return h.fail(ctx, e, tries+1, f)
}

// attempts is how often an event has failed before.
func (h *holder) attempts(e platform.Event) int32 {
	if h.st.FailingPos == e.Pos {
		return h.st.Attempts
	}
	return 0
}
