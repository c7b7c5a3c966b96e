package job

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/internal/claim"
	"github.com/pgmill/pgmill/platform/internal/db"
	"github.com/pgmill/pgmill/platform/internal/failpoint"
)

// end is how one attempt ended, to be settled with others in one statement.
type end struct {
	task    *task
	outcome string // succeeded, failed, released
	reason  platform.Reason
	final   bool
	output  []byte
	rest    time.Duration
}

func (b end) large() bool { return isLarge(b.output) }

// settleMost bounds what is settled together.
const settleMost = 1000

// Run settles what ends, until Stop.
func (e *Engine) Run(ctx context.Context) error {
	defer close(e.done)
	for {
		select {
		case first := <-e.ends:
			e.settle(ctx, e.more(first))
		case <-e.stopped:
			for len(e.ends) > 0 {
				e.settle(ctx, e.more(<-e.ends))
			}
			return nil
		}
	}
}

// more is first and what has ended since.
func (e *Engine) more(first end) []end {
	batch := []end{first}
	for len(batch) < settleMost {
		select {
		case next := <-e.ends:
			batch = append(batch, next)
		default:
			return batch
		}
	}
	return batch
}

// Stop ends Run once everything that has ended is settled. What ends later is not: it
// is rescued.
func (e *Engine) Stop(ctx context.Context) {
	close(e.stopped)
	select {
	case <-e.done:
	case <-ctx.Done():
	}
}

// settle writes a batch; while the database is away it tries again, for as long as the
// host's lease may last. One that Postgres refuses to take (what it holds is no
// jsonb) fails by itself. Large ones are written singly; one that was not there in time
// twice, while the lease holds, is refused: others wait behind it.
func (e *Engine) settle(ctx context.Context, batch []end) {
	if i := slices.IndexFunc(batch, end.large); i >= 0 && len(batch) > 1 {
		e.settle(ctx, batch[i:i+1])
		e.settle(ctx, slices.Delete(batch, i, i+1))
		return
	}
	slow := 0
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		failpoint.At("job-before-settle")
		err := e.write(ctx, batch)
		if err == nil {
			failpoint.At("job-after-settle")
			return
		}
		held := e.Held()
		if batch[0].large() && errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			slow++
		}
		switch {
		case claim.IsSQL(err) && !claim.IsServer(err) && !claim.IsConflict(err), slow == 2 && held.Err() == nil:
			if len(batch) > 1 {
				for _, one := range batch {
					e.settle(ctx, []end{one})
				}
				return
			}
			if batch[0].output != nil {
				e.Log.Warn("a job's output was refused", "job", batch[0].task.Job, "topic", batch[0].task.Topic, "in_time", slow == 0)
				batch, slow = []end{{task: batch[0].task, outcome: "failed", reason: platform.ReasonBadOutput, final: true}}, 0
				continue
			}
			e.Log.Error("a job is not settled; it will be rescued", "job", batch[0].task.Job, "error", err)
			e.forget(batch[0].task.Claim)
			return
		case held.Err() != nil || ctx.Err() != nil:
			for _, one := range batch {
				e.lost(ctx, one)
			}
			return
		}
		e.Log.Warn("jobs not settled yet", "jobs", len(batch), "error", err)
		select {
		case <-held.Done():
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

func (e *Engine) write(ctx context.Context, batch []end) error {
	if batch[0].large() {
		return e.writeLarge(ctx, batch[0])
	}
	p := db.ClaimsEndParams{}
	plain := true
	for _, b := range batch {
		p.Claims = append(p.Claims, b.task.Claim)
		p.Outcomes = append(p.Outcomes, b.outcome)
		p.Reasons = append(p.Reasons, string(b.reason))
		p.Finals = append(p.Finals, b.final)
		p.Outputs = append(p.Outputs, b.output)
		p.RestsMs = append(p.RestsMs, b.rest.Milliseconds())
		plain = plain && b.outcome == "succeeded"
	}
	if plain {
		p.Outcomes = nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	rows, err := db.New(e.Control).ClaimsEnd(ctx, p)
	if err != nil {
		return err
	}
	states := make(map[int64]string, len(rows))
	for _, r := range rows {
		states[r.Claim] = r.State
	}
	for _, b := range batch {
		if state, ok := states[b.task.Claim]; ok {
			e.ended(b.task, state)
		} else {
			e.lost(ctx, b)
		}
	}
	return nil
}

// writeLarge tells a lock, which is waited for again, from a write that takes too long.
func (e *Engine) writeLarge(ctx context.Context, b end) error {
	within, cancel := context.WithTimeout(ctx, e.patient(b.output))
	defer cancel()
	batch := &pgx.Batch{}
	batch.Queue("select set_config('lock_timeout', '5s', true)")
	batch.Queue(sqlLarge, b.task.Claim, b.output)
	err := e.Control.SendBatch(within, batch).Close()
	switch {
	case err == nil:
		e.ended(b.task, "SUCCEEDED")
	case claim.IsLost(err):
		e.lost(ctx, b)
	default:
		return err
	}
	return nil
}

func (e *Engine) ended(t *task, state string) {
	e.forget(t.Claim)
	if e.limited.Load() {
		e.Again()
	}
	if e.Observe.Ended != nil {
		e.Observe.Ended(t.Topic, state, time.Since(t.at))
	}
}

// lost drops what a job that is not ours any more has come to.
func (e *Engine) lost(ctx context.Context, b end) {
	e.forget(b.task.Claim)
	if b.outcome == "released" {
		return
	}
	if e.Observe.Lost != nil {
		e.Observe.Lost()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := db.New(e.Control).JobLate(ctx, db.JobLateParams{Job: b.task.Job, Attempt: b.task.Attempt, Me: e.Instance}); err != nil {
		e.Log.Warn("a late result was not noted", "job", b.task.Job, "error", err)
	}
}

var (
	errCancelled = errors.New("the job was cancelled")
	errDeadline  = errors.New("the job's time is over")
)
