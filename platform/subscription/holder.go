package subscription

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/internal/claim"
	"github.com/pgmill/pgmill/platform/internal/db"
	"github.com/pgmill/pgmill/platform/outbox"
)

const (
	window     = 50_000                 // positions read in one go at the most
	tidyAfter  = 200 * time.Millisecond // idle for so long, the cursor follows what was only read
	troubleMax = time.Second            // longest pause when the database is in trouble

	// tickLinger is how long the shard of a schedule stays claimed after a tick:
	// thousands may be due at once, and few of them again soon.
	tickLinger = 100 * time.Millisecond
)

// errMoved says that the shard was changed by somebody else: open it again.
var errMoved = errors.New("the shard was changed")

// errDone says that the claim is given back.
var errDone = errors.New("the claim is given back")

// holder works on one shard as long as it has the claim.
type holder struct {
	*Engine
	sub   platform.Subscription
	role  string // that its handler runs as; "": the host's own
	claim claim.Claim
	no    int32
	news  *outbox.Watch
	log   *slog.Logger
	since time.Time

	linger time.Duration // the engine's, or less

	st      db.ShardOpenRow
	scanned int64 // everything up to here was read; at least st.Pos
	take    int   // events a batch now
	parked  map[string]bool
	clashes int // conflicts with other transactions in a row
	errands chan errand
	eager   bool // its last errand was worth it
	listed  bool // it has volunteered for the next
	batches int  // that failed, and nobody said at which event
	untrack func()
}

func newHolder(e *Engine, s platform.Subscription, c claim.Claim, no int32) *holder {
	linger := e.Linger
	if k := s.Describe().Kind; k == "schedule" || k == "cleanup" {
		linger = min(linger, tickLinger)
	}
	role := ""
	if e.Role != nil {
		role = e.Role(s.Module)
	}
	return &holder{Engine: e, sub: s, role: role, claim: c, no: no, log: e.Log.With("subscription", s.Name, "shard", no), since: time.Now(), take: s.Batch, linger: linger,
		errands: make(chan errand, 1), eager: true,
		untrack: sync.OnceFunc(func() { e.track(s.Name, -1) })}
}

// run works until the claim is given back or lost. ctx ends when the grace of a
// stopping host is over.
func (h *holder) run(ctx context.Context) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	held := h.Held()
	defer context.AfterFunc(held, func() { cancel(context.Cause(held)) })()
	released := false
	defer func() {
		if !released && h.draining() && ctx.Err() != nil && held.Err() == nil { // the grace is over, the lease is not
			h.handBack(context.WithoutCancel(ctx))
		}
	}()
	h.news = h.Feed.Watch(h.sub.Matches)
	defer h.news.Stop()

	trouble := time.Duration(0)
	reopen := true
	for ctx.Err() == nil {
		var err error
		if reopen {
			err = h.open(ctx)
		}
		if err == nil {
			reopen = false
			err = h.step(ctx)
		}
		switch {
		case err == nil:
			trouble = 0
		case errors.Is(err, errDone):
			released = true
			return
		case errors.Is(err, errMoved):
			reopen = true
		case claim.IsLost(err):
			h.log.Warn("stale writer rejected", "claim", h.claim.ID, "reason", platform.ReasonLeaseLost)
			if h.Observe.Lost != nil {
				h.Observe.Lost()
			}
			return
		case ctx.Err() != nil: // the host is stopping, or has lost its lease
		default: // the database is in trouble: nothing is lost, look again
			h.log.Warn("shard paused for a moment", "error", err)
			reopen = true
			trouble = min(max(10*time.Millisecond, 2*trouble), troubleMax)
			pause(ctx, trouble)
		}
	}
	if held.Err() != nil {
		h.log.Warn("shard left to another host", "claim", h.claim.ID, "reason", platform.ReasonLeaseLost)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// open reads what the holder goes by. It fails with a lost claim if another host
// has it by now.
func (h *holder) open(ctx context.Context) error {
	octx, cancel := context.WithTimeout(ctx, h.sub.Timeout)
	defer cancel()
	st, err := db.New(h.Control).ShardOpen(octx, db.ShardOpenParams{Claim: h.claim.ID, Name: h.sub.Name, No: h.no})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return h.release(ctx)
	case err != nil:
		return err
	case !st.Ours:
		return claim.ErrLost
	}
	h.st, h.scanned = st, st.Pos
	h.sharded(h.sub.Name, st.Shards)
	h.parked = map[string]bool{}
	for _, k := range st.ParkedKeys {
		h.parked[k] = true
	}
	return nil
}

// step does one thing: give back, settle the fate of an event whose attempts are
// spent, replay a key, run a batch, or wait for news.
func (h *holder) step(ctx context.Context) error {
	switch {
	case h.draining() || !h.st.Runnable:
		return h.release(ctx)
	case h.st.FailingPos > 0 && h.st.Attempts >= h.st.MaxAttempts && !h.st.Held:
		return h.condemn(ctx)
	case len(h.st.ReplayKeys) > 0:
		return h.replay(ctx, h.st.ReplayKeys[0])
	case h.others() > 0 && time.Since(h.since) > h.GiveBack, h.crowded() && time.Since(h.since) > h.Linger:
		return h.release(ctx)
	case h.scanned < h.end():
		return h.batch(ctx)
	case h.st.StopAt > 0 && h.scanned >= h.st.StopAt: // after the replays: a change of shards waits for them
		return h.release(ctx)
	default:
		return h.wait(ctx)
	}
}

// end is the last position that the holder may read: the head, unless the shard is to
// stop before it.
func (h *holder) end() int64 {
	if h.st.StopAt > 0 {
		return min(h.Feed.Head(), h.st.StopAt)
	}
	return h.Feed.Head()
}

// wait lingers for news; a cursor that was only read past follows after a moment.
func (h *holder) wait(ctx context.Context) error {
	linger := time.NewTimer(h.linger)
	defer linger.Stop()
	var tidy <-chan time.Time
	if h.scanned > h.st.Pos {
		tidy = time.After(tidyAfter)
	}
	h.volunteer()
	defer h.withdraw()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case a := <-h.errands:
			return h.errand(ctx, a)
		case <-h.news.C:
			return nil
		case <-h.drain:
			return nil
		case <-tidy:
			tidy = nil
			head, quiet := h.quiet()
			if !quiet {
				return nil
			}
			h.scanned = max(h.scanned, head)
			if err := h.move(ctx, h.scanned); err != nil {
				return err
			}
		case <-linger.C:
			return h.release(ctx)
		}
	}
}

// quiet answers the head, if nothing up to it is news for the shard. A publisher
// moves the head and wakes the watch in one step, so the head is read first.
func (h *holder) quiet() (head int64, ok bool) {
	head = h.end()
	select {
	case <-h.news.C:
		return 0, false
	default:
		return head, true
	}
}

// write does what a holder writes outside a handler's transaction. It may wait for
// an operator's open transaction, so it takes a handler's connection and no longer
// than a handler: what looks and renews the lease does not wait behind it.
func (h *holder) write(ctx context.Context, f func(tx pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, h.sub.Timeout)
	defer cancel()
	return pgx.BeginFunc(ctx, h.Pool, f)
}

// move settles a cursor that passes over events that are not the shard's.
func (h *holder) move(ctx context.Context, to int64) error {
	return h.write(ctx, func(tx pgx.Tx) error {
		q := db.New(tx)
		if err := h.unchanged(ctx, q); err != nil {
			return err
		}
		return h.settleIn(ctx, q, to)
	})
}

// unchanged fails with errMoved if what was read since the shard was opened may not
// be so any more: somebody changed the shard, or a crash took positions back. It comes
// first in a transaction that settles what another one has read.
func (h *holder) unchanged(ctx context.Context, q *db.Queries) error {
	version, err := q.ShardVersion(ctx, db.ShardVersionParams{Name: h.sub.Name, No: h.no})
	if err == nil && version != h.st.Version {
		return errMoved
	}
	return err
}

// still is unchanged for what is written about the shard's events with no cursor's n to
// refuse it: it stays so until the commit.
func (h *holder) still(ctx context.Context, q *db.Queries) error {
	version, err := q.ShardLock(ctx, db.ShardLockParams{Name: h.sub.Name, No: h.no})
	if errors.Is(err, pgx.ErrNoRows) || err == nil && version != h.st.Version {
		return errMoved
	}
	return err
}

// note writes down which event is handled next, so that a host's death with it counts.
func (h *holder) note(ctx context.Context, e platform.Event) error {
	return h.write(ctx, func(tx pgx.Tx) error {
		q := db.New(tx)
		if err := h.still(ctx, q); err != nil {
			return err
		}
		return q.ShardNote(ctx, db.ShardNoteParams{Claim: h.claim.ID, Name: h.sub.Name, No: h.no, Pos: e.Pos})
	})
}

// settleIn appends the cursor and checks the fence, in a transaction of the caller.
func (h *holder) settleIn(ctx context.Context, q *db.Queries, to int64) error {
	err := q.ShardSettle(ctx, db.ShardSettleParams{Claim: h.claim.ID, Name: h.sub.Name, No: h.no, N: h.st.N + 1, Pos: to})
	if claim.IsMoved(err) {
		return errMoved
	}
	if err == nil {
		h.st.N, h.st.Pos, h.scanned = h.st.N+1, to, max(h.scanned, to)
	}
	return err
}

// handBack gives the claim back when its work was cut short.
func (h *holder) handBack(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 700*time.Millisecond) // the host waits a second
	defer cancel()
	if err := h.release(ctx); !errors.Is(err, errDone) {
		h.log.Warn("claim not handed back; it will be rescued", "error", err)
	}
}

// release gives the claim back, its cursor up to date, and makes a new claim if
// there is work left. It returns errDone.
func (h *holder) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.sub.Timeout)
	defer cancel()
	err := pgx.BeginFunc(ctx, h.Control, func(tx pgx.Tx) error {
		q := db.New(tx)
		if h.scanned > h.st.Pos && h.st.Ours {
			err := h.unchanged(ctx, q)
			if err == nil {
				err = h.settleIn(ctx, q, h.scanned)
			} else if errors.Is(err, errMoved) {
				err = nil // what was read is read again by the next holder
			}
			if err != nil {
				return err
			}
		}
		return q.ClaimRelease(ctx, h.claim.ID)
	})
	if err != nil {
		return err
	}
	h.untrack() // before the look: what arrives after it is News's to see to
	if err := h.derive(ctx, []string{h.sub.Name}); err != nil {
		h.log.Warn("claims not derived; the poll will", "error", err)
	}
	return errDone
}
