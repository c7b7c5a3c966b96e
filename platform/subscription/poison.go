package subscription

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/internal/db"
)

// failedOnce tells the log and the counters of one failed call.
func (h *holder) failedOnce(e platform.Event, f *failed) {
	h.log.Warn("event failed", "pos", e.Pos, "event", e.ID, "reason", string(f.reason), "error", f.cause)
	if h.Observe.Failed != nil {
		h.Observe.Failed(f.reason)
	}
}

// batchFailed tells of a failed batch of which nobody knows the failing event. Its
// events are tried one by one, and may all go well then: the one that does not is
// told with its error, this only by its reason, the first and then each hundredth.
func (h *holder) batchFailed(events int, f *failed) {
	if h.Observe.BatchFailed != nil {
		h.Observe.BatchFailed()
	}
	if h.batches++; h.batches%100 == 1 {
		h.log.Warn("batch failed; its events are tried one by one", "events", events, "reason", string(f.reason), "batches", h.batches)
	}
}

// fail writes down what becomes of an event after its tries-th failure. Unless it
// is parked, the claim is given back.
func (h *holder) fail(ctx context.Context, e platform.Event, tries int32, f *failed) error {
	verdict, wait := Decide(int(tries), int(h.st.MaxAttempts), platform.Poison(h.st.OnPoison), f.reason, f.final, true, spread())
	if verdict == Park {
		parked, err := h.park(ctx, e, tries, f.reason)
		if err != nil || parked {
			return err
		}
		verdict, wait = Decide(int(tries), int(h.st.MaxAttempts), platform.Poison(h.st.OnPoison), f.reason, f.final, false, spread())
	}
	p := db.ShardFailParams{Claim: h.claim.ID, Name: h.sub.Name, No: h.no, Pos: e.Pos, Attempts: tries, Reason: string(f.reason), Hold: verdict == Hold}
	if wait > 0 {
		ms := wait.Milliseconds()
		p.WaitMs = &ms
	}
	err := h.write(ctx, func(tx pgx.Tx) error {
		q := db.New(tx)
		if err := h.still(ctx, q); err != nil {
			return err
		}
		return q.ShardFail(ctx, p)
	})
	if err != nil {
		return fmt.Errorf("write down a failure: %w", err)
	}
	if verdict == Hold && h.Observe.Stopped != nil {
		h.Observe.Stopped()
	}
	return errDone
}

// park sets the event and its key aside and moves the cursor past it. It is not
// parked when the shard has as many parked keys as it may.
func (h *holder) park(ctx context.Context, e platform.Event, tries int32, reason platform.Reason) (parked bool, err error) {
	key := h.orderKey(e)
	err = h.write(ctx, func(tx pgx.Tx) error {
		q := db.New(tx)
		if err := h.still(ctx, q); err != nil {
			return err
		}
		parked, err = q.ShardPark(ctx, db.ShardParkParams{Name: h.sub.Name, No: h.no, Pos: e.Pos, Key: key, Attempts: tries, Reason: string(reason)})
		if err != nil || !parked {
			return err
		}
		if err := q.ShardClear(ctx, db.ShardClearParams{Name: h.sub.Name, No: h.no, Passed: 1}); err != nil {
			return err
		}
		return h.settleIn(ctx, q, e.Pos)
	})
	if err != nil || !parked {
		return false, err
	}
	h.parked[key] = true
	h.scanned = e.Pos
	h.st.FailingPos, h.st.Attempts, h.st.Held = 0, 0, false
	h.st.SuspectLeft = max(0, h.st.SuspectLeft-1)
	if h.Observe.Parked != nil {
		h.Observe.Parked()
	}
	return true, nil
}

// condemn decides on an event whose attempts were spent by hosts that died with it.
func (h *holder) condemn(ctx context.Context) error {
	u, events, err := h.begin(ctx, func(b *pgx.Batch) {
		b.Queue(sqlRead, h.st.FailingPos-1, h.st.FailingPos, 1, h.st.Likes, h.st.Shards, h.no, h.st.ByKey)
	})
	if err != nil {
		return err
	}
	u.Rollback()
	if len(events) == 0 { // it matches no more
		h.st.FailingPos = 0
		return nil
	}
	return h.fail(ctx, events[0], h.st.Attempts, &failed{reason: platform.Reason(h.st.Reason)})
}

// replay handles the next waiting event of a parked key, or finds that the key has
// met the cursor and is an ordinary one again. The event is noted first: a host's
// death parks the key again, so that what was parked for killing hosts cannot kill
// them without end.
func (h *holder) replay(ctx context.Context, key string) error {
	u, events, err := h.begin(ctx, func(b *pgx.Batch) {
		b.Queue(sqlReadKey, h.sub.Name, h.no, key, 1, h.st.ByKey)
	})
	if err != nil {
		return err
	}
	if len(events) == 0 {
		b := h.last()
		b.Queue("delete from pgmill.parked_key where subscription = $1 and shard = $2 and key = $3 and replay_pos is not null", h.sub.Name, h.no, key)
		b.Queue(sqlFence, h.claim.ID)
		if err := u.commit(ctx, b); err != nil {
			return err
		}
		return errMoved
	}
	u.Rollback()
	e := events[0]
	if err := h.note(ctx, e); err != nil {
		return err
	}
	if u, _, err = h.begin(ctx, nil); err != nil {
		return err
	}
	_, f, err := h.call(ctx, u, events)
	if err != nil {
		u.Rollback()
		return err
	}
	if f == nil {
		b := h.last()
		b.Queue(sqlUnnote, h.sub.Name, h.no)
		b.Queue("delete from pgmill.parked_event where subscription = $1 and shard = $2 and pos = $3", h.sub.Name, h.no, e.Pos)
		b.Queue("update pgmill.parked_key set replay_pos = $4 where subscription = $1 and shard = $2 and key = $3", h.sub.Name, h.no, key, e.Pos)
		b.Queue(sqlFence, h.claim.ID)
		if err := u.commit(ctx, b); err != nil {
			if f, err = h.uncommitted(ctx, err, 1); err != nil {
				return err
			}
		}
	} else {
		u.Rollback()
	}
	if f == nil {
		return nil
	}
	h.failedOnce(e, f)
	return h.write(ctx, func(tx pgx.Tx) error {
		q := db.New(tx)
		if err := h.still(ctx, q); err != nil {
			return err
		}
		if _, err := q.ShardPark(ctx, db.ShardParkParams{Name: h.sub.Name, No: h.no, Pos: e.Pos, Key: key, Attempts: 1, Reason: string(f.reason)}); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, sqlUnnote, h.sub.Name, h.no); err != nil {
			return err
		}
		h.st.ReplayKeys = h.st.ReplayKeys[1:]
		return q.ClaimFence(ctx, h.claim.ID)
	})
}
