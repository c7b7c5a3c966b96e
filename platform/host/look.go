package host

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/internal/claim"
	"github.com/pgmill/pgmill/platform/job"
	"github.com/pgmill/pgmill/platform/outbox"
	"github.com/pgmill/pgmill/platform/schedule"
	"github.com/pgmill/pgmill/platform/subscription"
	"github.com/pgmill/pgmill/platform/wakeup"
)

// look finds what is new and sees to it that somebody has the claims for it.
func (w *Worker) look(ctx context.Context, feed *outbox.Feed, engine *subscription.Engine, jobs *job.Engine, claims *claim.Claims, look func(ctx context.Context) (outbox.News, error)) (wakeup.Found, error) {
	w.turned()
	w.ring()
	before := feed.Head()
	ctx, cancel := context.WithTimeout(ctx, w.patience()) // a connection can die without a word (F42)
	defer cancel()
	askJobs(jobs, claims) // beside the look: a job's way is its own
	news, err := look(ctx)
	if err != nil {
		return wakeup.Found{}, err
	}
	w.counted(news)
	if news.Fresh {
		if err := engine.News(ctx, news.Types); err != nil {
			return wakeup.Found{}, err
		}
	}
	return wakeup.Found{Events: news.Head - before, Jobs: jobs.Fetched(), Busy: news.Advanced < 0}, nil
}

// askJobs makes the host claim jobs, if it has steps.
func askJobs(jobs *job.Engine, claims *claim.Claims) {
	if jobs.Any() {
		claims.RingJobs()
	}
}

func (w *Worker) counted(news outbox.News) {
	switch {
	case news.Advanced > 0:
		w.metrics.EventsAdvanced(int(news.Advanced))
		w.metrics.Looked("advanced")
	case news.Advanced < 0:
		w.metrics.Looked("busy")
	default:
		w.metrics.Looked("empty")
	}
}

// tick is the poll: advance, rescue and derive in one call; schedules that are due
// take two more.
func (w *Worker) tick(ctx context.Context, control *pgxpool.Pool, bell *wakeup.Bell, feed *outbox.Feed, engine *subscription.Engine, schedules *schedule.Engine, jobs *job.Engine, claims *claim.Claims) (wakeup.Found, error) {
	w.turned()
	w.ring()
	before := feed.Head()
	var advanced, head int64
	var types []string
	var rescued, derived, others int
	var nextMs *int64
	ctx, cancel := context.WithTimeout(ctx, w.patience())
	defer cancel()
	err := control.QueryRow(ctx, "call pgmill.tick($1, $2, $3, null, null, null, null, null, null, null)", w.ID(), before, bell.Up()).
		Scan(&advanced, &head, &types, &rescued, &derived, &nextMs, &others)
	if err != nil {
		return wakeup.Found{}, fmt.Errorf("poll: %w", err)
	}
	w.touched()
	w.others.Store(int32(others))
	news := feed.Publish(advanced, head, types)
	w.counted(news)
	w.metrics.Polled()
	w.metrics.ClaimsHeld(len(claims.Known()))
	if rescued > 0 {
		w.metrics.ClaimsRescued(rescued)
		w.Log.Warn("claims taken from a dead host", "claims", rescued)
	}
	if derived > 0 {
		engine.Derived(derived)
	}
	askJobs(jobs, claims)
	f := wakeup.Found{Events: head - before, Jobs: jobs.Fetched(), Busy: advanced < 0}
	if nextMs != nil && *nextMs <= 0 {
		ticks, moved, err := schedules.Sweep(ctx)
		if err != nil {
			return f, err
		}
		f.Events += int64(ticks) // look for their positions at once
		f.Next = time.Millisecond
		if !moved { // locked: another host is at them, and done with it soon
			f.Next = 100 * time.Millisecond
		}
	} else if nextMs != nil {
		f.Next = max(time.Millisecond, time.Duration(*nextMs)*time.Millisecond)
	}
	return f, nil
}

// patience is how long a look or a poll may take.
func (w *Worker) patience() time.Duration { return max(5*time.Second, w.LeaseTTL) }

// ring tells the API that there may be jobs.
func (w *Worker) ring() {
	if w.looked != nil {
		w.looked()
	}
}

// turned notes that the loop goes round.
func (w *Worker) turned() { w.lastTurn.Store(int64(time.Since(w.started))) }

// turning reports whether the loop goes round: it waits for the database no longer
// than its patience, however long that is away.
func (w *Worker) turning() bool {
	last := w.lastTurn.Load()
	return last == 0 || time.Since(w.started)-time.Duration(last) < w.Poll+2*w.patience()
}

// touched notes that the database answered just now.
func (w *Worker) touched() { w.lastTick.Store(int64(time.Since(w.started))) }

// observe hands the engine the counters.
func (w *Worker) observe() subscription.Observe {
	return subscription.Observe{
		Handled: func(n int, took time.Duration) {
			w.metrics.EventsHandled(n)
			w.metrics.BatchDone("ok")
			w.metrics.HandlerTook(took)
		},
		Failed: func(r platform.Reason) {
			w.metrics.EventFailed(r)
			w.metrics.BatchDone("failed")
		},
		BatchFailed: func() { w.metrics.BatchDone("failed") },
		Lost: func() {
			w.metrics.StaleWriterRejected()
			w.metrics.BatchDone("lost")
		},
		Parked:  w.metrics.EventParked,
		Stopped: w.metrics.ShardHeld,
	}
}
