package subscription

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform/internal/claim"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/outbox"
)

// errandWait is how long an errand waits for a connection that a handler has just taken.
const errandWait = 20 * time.Millisecond

// errand is a look that an idle holder does on the way to its own next events: look,
// begin and read in one round trip, where a look by itself makes it two between the
// bell and the handler. Worth it when there is news for sure.
type errand struct {
	ctx  context.Context
	done chan<- looked // gets one
}

type looked struct {
	news     outbox.News
	err      error
	declined bool
}

// Look is Feed.Look for somebody who was rung: there is something new.
func (e *Engine) Look(ctx context.Context) (outbox.News, error) {
	if h := e.volunteered(); h != nil {
		done := make(chan looked, 1)
		h.errands <- errand{ctx, done}
		if l := <-done; !l.declined {
			return l.news, l.err
		}
	}
	return e.Feed.Look(ctx, 0)
}

// volunteered takes the holder that worked last off the list of the idle.
func (e *Engine) volunteered() *holder {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.idle) == 0 {
		return nil
	}
	h := e.idle[len(e.idle)-1]
	e.idle = e.idle[:len(e.idle)-1]
	return h
}

// volunteer puts the holder on that list, withdraw takes it off again; an errand that
// came in between is declined.
func (h *holder) volunteer() {
	if !h.eager || h.alone() || h.st.StopAt > 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.idle = append(h.idle, h)
	h.listed = true
}

func (h *holder) withdraw() {
	if !h.listed {
		return
	}
	h.listed = false
	h.mu.Lock()
	i := slices.Index(h.idle, h)
	if i >= 0 {
		h.idle = slices.Delete(h.idle, i, i+1)
	}
	h.mu.Unlock()
	if i < 0 {
		(<-h.errands).done <- looked{declined: true}
	}
}

// errand looks, and goes on as a batch does if something was for this shard. It is
// declined when all connections are with handlers, behind which a look must not wait.
func (h *holder) errand(ctx context.Context, a errand) error {
	h.listed = false
	if h.Pool.Stat().IdleConns() == 0 {
		a.done <- looked{declined: true}
		return nil
	}
	actx, cancel := context.WithTimeout(a.ctx, errandWait)
	session, err := claim.Acquire(actx, h.Pool)
	cancel()
	if err != nil {
		a.done <- looked{declined: true}
		return nil
	}
	u, started := &unit{Session: session}, time.Now()
	b := &pgx.Batch{}
	h.Feed.QueueLook(b)
	h.queueBegin(b)
	b.Queue(sqlReadNew, h.scanned, h.scanned+window, h.take, h.st.Likes, h.st.Shards, h.no, h.st.ByKey)
	claim.AsModule(b, h.role)
	res := u.Send(a.ctx, b)
	news, err := h.Feed.ReadLook(res)
	a.done <- looked{news: news, err: err}
	var events []platform.Event
	if err == nil {
		events, err = h.received(res, u, true)
	}
	if err = errors.Join(err, res.Close()); err != nil {
		u.Rollback()
		return err
	}
	h.eager = len(events) > 0
	upto := max(h.scanned, min(news.Head, h.scanned+window))
	if h.eager {
		upto = max(upto, events[len(events)-1].Pos) // another host may have advanced after our look
	}
	return h.work(ctx, u, events, h.take, upto, started)
}
