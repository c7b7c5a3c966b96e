package job

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/internal/claim"
	"github.com/pgmill/pgmill/platform/internal/db"
	"github.com/pgmill/pgmill/platform/internal/failpoint"
)

// The statements around a handler are sent with it in two round trips.
const (
	sqlIdle   = "select set_config('idle_in_transaction_session_timeout', $1, true), set_config('application_name', $2, true), set_config('pgmill.trace_id', $3, true), pg_backend_pid()"
	sqlSettle = "select pgmill.settle_job($1, $2)"
	sqlLarge  = "select pgmill.settle_blob($1, $2)"
)

// patience is how long a handler has to come back after its context ended.
const patience = 300 * time.Millisecond

// work does one claimed job. ctx ends when the host's grace is over.
func (e *Engine) work(ctx context.Context, c claim.Claim) {
	t, step, ok := e.begin(c.ID)
	if !ok {
		return
	}
	held := e.Held()
	ctx, drop := context.WithCancelCause(ctx)
	defer context.AfterFunc(held, func() { drop(context.Cause(held)) })()
	defer drop(nil)
	within := step.Timeout
	if t.WithinMs != 0 {
		within = time.Duration(t.WithinMs) * time.Millisecond
	}
	run, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if t.ByDeadline {
		var cancel context.CancelFunc
		run, cancel = context.WithTimeoutCause(run, within, errDeadline)
		defer cancel()
	}
	if e.cancellable(t, stop) {
		stop(errCancelled)
	}

	result := e.call(run, step, t, within)
	switch {
	case result.outcome == "": // settled by its own transaction
		return
	case ctx.Err() != nil && held.Err() == nil && result.outcome != "succeeded": // told to stop: it begins again elsewhere
		result = end{task: t, outcome: "released"}
	case held.Err() != nil:
		e.lost(ctx, result)
		return
	}
	select {
	case e.ends <- result:
	case <-e.stopped:
	}
}

func (e *Engine) begin(id int64) (*task, platform.StepSpec, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.tasks[id]
	if t == nil {
		return nil, platform.StepSpec{}, false
	}
	return t, e.steps[t.Topic], true
}

// cancellable lets a cancel reach the job; true: it came before.
func (e *Engine) cancellable(t *task, stop context.CancelCauseFunc) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	t.cancel = stop
	return t.gone
}

// call runs the handler and says how the attempt ended; no outcome: it is settled.
// A handler's time begins when it does: many may wait for few connections.
func (e *Engine) call(ctx context.Context, step platform.StepSpec, t *task, within time.Duration) end {
	var s *claim.Session
	var pid int32
	if step.Run == nil {
		var err error
		if s, pid, err = e.open(ctx, step, t, within); err != nil {
			return e.unopened(ctx, t, err)
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, within, errDeadline)
	defer cancel()
	if step.Run != nil {
		out, err := e.outside(ctx, step, t)
		return e.judge(ctx, t, out, cmp.Or(err, checkLarge(out)))
	}
	conn := s.Conn()
	out, err, back := await(ctx, func() (json.RawMessage, error) {
		out, err := step.Handle(ctx, claim.NewTx(conn), t.Input)
		if err == nil && !claim.Open(conn) {
			err = errAborted
		}
		return out, err
	})
	if !back {
		s.Abandon()
		e.terminate(ctx, pid)
		return e.judge(ctx, t, nil, errLeft)
	}
	if err = cmp.Or(err, ctx.Err(), checkLarge(out)); err != nil {
		s.Rollback()
		return e.judge(ctx, t, nil, err)
	}
	b := claim.AsHost(e.role(step))
	settle := sqlSettle
	if isLarge(out) {
		settle = sqlLarge
	}
	b.Queue(settle, t.Claim, []byte(out))
	commit, done := context.WithTimeout(context.WithoutCancel(ctx), e.patient(out))
	defer done()
	failpoint.At("job-before-settle")
	sent, err := s.Commit(commit, b)
	switch {
	case err == nil:
		failpoint.At("job-after-settle")
		e.ended(t, "SUCCEEDED")
		return end{}
	case claim.IsLost(err):
		e.lost(ctx, end{task: t, outcome: "succeeded"})
		return end{}
	default:
		return e.judge(ctx, t, nil, unsettled(err, out, sent == b.Len()-2))
	}
}

// unsettled tells an output that Postgres refuses, for good, or does not store in time,
// from a commit that failed: what the handler wrote may be refused then, too. settling says
// that it was the settle which failed, the last statement before the commit.
func unsettled(err error, out []byte, settling bool) error {
	switch {
	case settling && claim.IsBadValue(err):
		return platform.Fail(platform.ReasonBadOutput, err)
	case isLarge(out) && errors.Is(err, context.DeadlineExceeded):
		return platform.Because(platform.ReasonBadOutput, err)
	}
	return &platform.Failure{Reason: platform.ReasonCommitFailed, Cause: err} // which an author may not say
}

// unopened says how an attempt ended that has not begun. It does not count against a job
// that the database was away, or has no session left.
func (e *Engine) unopened(ctx context.Context, t *task, err error) end {
	if ctx.Err() != nil || claim.IsSQL(err) && !claim.IsServer(err) {
		return e.judge(ctx, t, nil, err)
	}
	e.Log.Warn("a job has no connection; it comes again", "job", t.Job, "topic", t.Topic, "error", err)
	return end{task: t, outcome: "released", reason: platform.ReasonDatabaseUnreachable, rest: time.Second}
}

// open begins a handler's transaction.
func (e *Engine) open(ctx context.Context, step platform.StepSpec, t *task, within time.Duration) (*claim.Session, int32, error) {
	s, err := claim.Acquire(ctx, e.Pool)
	if err != nil {
		return nil, 0, err
	}
	b := &pgx.Batch{}
	b.Queue("begin")
	b.Queue(sqlIdle, fmt.Sprint((within + e.LeaseTTL).Milliseconds()), claim.SessionName(e.Instance), t.TraceID)
	claim.AsModule(b, e.role(step))
	res := s.Send(ctx, b)
	var pid int32
	_, err = res.Exec()
	if err == nil {
		err = res.QueryRow().Scan(nil, nil, nil, &pid)
	}
	if err = errors.Join(err, res.Close()); err != nil {
		s.Rollback()
		return nil, 0, err
	}
	return s, pid, nil
}

// role is what a step's Handle runs as; "": as the host.
func (e *Engine) role(step platform.StepSpec) string {
	if e.Role == nil {
		return ""
	}
	return e.Role(step.Module)
}

// outside runs a handler without a transaction.
func (e *Engine) outside(ctx context.Context, step platform.StepSpec, t *task) (json.RawMessage, error) {
	a := platform.NewAttempt(platform.Attempt{Job: t.Job, Number: int(t.Attempt), Key: t.Job, Scope: t.Scope, TraceID: t.TraceID},
		func(ctx context.Context, percent int, message string) error {
			p := db.JobProgressParams{Job: t.Job, Percent: int32(min(100, max(0, percent)))}
			if message = shown(message); message != "" {
				p.Message = &message
			}
			return db.New(e.Control).JobProgress(ctx, p)
		})
	out, err, back := await(ctx, func() (json.RawMessage, error) {
		return step.Run(platform.WithTrace(ctx, t.TraceID), a, t.Input)
	})
	if !back {
		return nil, errLeft
	}
	return out, err
}

// await calls a handler; back false: it did not come back after its context ended.
func await(ctx context.Context, f func() (json.RawMessage, error)) (out json.RawMessage, err error, back bool) {
	type answer struct {
		out json.RawMessage
		err error
	}
	c := make(chan answer, 1)
	go func() {
		var a answer
		a.err = claim.Safely(func() (err error) { a.out, err = f(); return err })
		c <- a
	}()
	select {
	case a := <-c:
		return a.out, a.err, true
	case <-ctx.Done():
	}
	select {
	case a := <-c:
		return a.out, a.err, true
	case <-time.After(patience):
		return nil, nil, false
	}
}

// judge turns what a handler answered into how its attempt ended.
func (e *Engine) judge(ctx context.Context, t *task, out json.RawMessage, err error) end {
	if err == nil {
		return end{task: t, outcome: "succeeded", output: out}
	}
	result := end{task: t, outcome: "failed", reason: platform.ReasonOf(err)}
	var own *platform.Failure
	var snoozed *platform.Snoozed
	var p *claim.Panicked
	switch {
	case errors.Is(context.Cause(ctx), errDeadline) && t.ByDeadline:
		result.reason, result.final = platform.ReasonDeadline, true
	case errors.Is(context.Cause(ctx), errDeadline):
		result.reason = platform.ReasonTimeout
	case errors.As(err, &snoozed):
		return end{task: t, outcome: "released", reason: platform.ReasonScheduled, rest: snoozed.For}
	case errors.As(err, &own):
		result.final = own.Final
	case errors.As(err, &p):
		result.reason = platform.ReasonPanic
	case claim.IsConflict(err):
		result.reason = platform.ReasonConflict
	case claim.IsDenied(err):
		result.reason = platform.ReasonPermissionDenied
	}
	if ctx.Err() == nil || errors.Is(context.Cause(ctx), errDeadline) {
		e.Log.Warn("job attempt failed", "job", t.Job, "topic", t.Topic, "attempt", t.Attempt, "reason", string(result.reason), "error", err)
	}
	return result
}

// terminate ends a session of ours in the server, best effort.
func (e *Engine) terminate(ctx context.Context, pid int32) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := claim.Terminate(ctx, e.Control, e.Instance, pid); err != nil {
		e.Log.Warn("a session was not ended; it ends by its timeout", "error", err)
	}
}

var (
	errAborted = errors.New("the handler went on after a failed statement, left rows unread, or ended the transaction itself")
	errLeft    = errors.New("the handler ignores its context and was left behind")
)
