package job

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/internal/claim"
	"github.com/pgmill/pgmill/platform/internal/db"
	"github.com/pgmill/pgmill/platform/internal/failpoint"
)

// Engine does the jobs whose claims this host gets. Fill in the fields; those without
// a remark are needed.
type Engine struct {
	Steps    []platform.StepSpec
	Pool     *pgxpool.Pool          // handlers' transactions
	Control  *pgxpool.Pool          // everything that must not wait behind handlers
	Held     func() context.Context // the lease's
	Instance string
	Log      *slog.Logger
	LeaseTTL time.Duration
	Slots    int             // jobs at once; 0 means 100
	Pools    []string        // nil: jobs of any pool, but none that asks for one
	Labels   json.RawMessage // what placements may ask for; nil: nothing
	Observe  Observe
	// Again asks for jobs, when an end may have made room for some.
	Again func()
	// Role is the role that a module's handlers run as, "" none; nil means none.
	Role func(module string) string

	steps map[string]platform.StepSpec
	ends  chan end
	// closed when nothing more is settled, and when the settler has ended
	stopped, done chan struct{}

	fetched atomic.Int64
	limited atomic.Bool // the last jobs are of topics or scopes with limits
	mu      sync.Mutex
	tasks   map[int64]*task // claims fetched and not yet settled
	early   map[int64]bool  // cancelled before their fetch had come back
	heard   []int64         // cancelled, by the last answer: the next question says so
}

// Observe hears what happens; each field may be nil.
type Observe struct {
	Ended func(topic, state string, took time.Duration) // an attempt was settled; state PENDING: it comes again
	Lost  func()                                        // a stale holder's settle was refused
}

// task is one claimed job.
type task struct {
	db.JobsAdmitRow
	at     time.Time
	cancel context.CancelCauseFunc // nil until it runs
	gone   bool                    // cancelled by somebody
}

// Init must be called before anything else.
func (e *Engine) Init() {
	e.Slots = cmp.Or(e.Slots, 100)
	e.steps = map[string]platform.StepSpec{}
	for _, s := range e.Steps {
		e.steps[s.Topic] = s
	}
	e.tasks, e.early = map[int64]*task{}, map[int64]bool{}
	e.ends = make(chan end, 2*e.Slots)
	e.stopped, e.done = make(chan struct{}), make(chan struct{})
}

// Source is where the claims of this host's jobs come from; nil without steps.
func (e *Engine) Source() *claim.Source {
	if len(e.Steps) == 0 {
		return nil
	}
	work := map[string]claim.Work{}
	for topic := range e.steps {
		work[topic] = e.work
	}
	return &claim.Source{Slots: e.Slots, Work: work, Fetch: e.fetch}
}

// Declare writes down which steps this build has.
func (e *Engine) Declare(ctx context.Context) error {
	if len(e.Steps) == 0 {
		return nil
	}
	type step struct {
		Name         string            `json:"name"`
		Module       string            `json:"module"`
		MaxAttempts  int               `json:"max_attempts"`
		MaxRuntimeMs int64             `json:"max_runtime_ms"`
		BackoffMs    int64             `json:"backoff_ms"`
		BackoffMaxMs int64             `json:"backoff_max_ms"`
		RetryOn      []platform.Reason `json:"retry_on"`
		Concurrency  int               `json:"concurrency"`
		PerScope     int               `json:"per_scope"`
		PerKey       int               `json:"per_key"`
		Rate         int               `json:"rate"`
		RatePerMs    int64             `json:"rate_per_ms"`
		In           json.RawMessage   `json:"input_schema,omitempty"`
		Out          json.RawMessage   `json:"output_schema,omitempty"`
	}
	var all []step
	for _, s := range e.Steps {
		all = append(all, step{s.Topic, s.Module, s.MaxAttempts, s.Timeout.Milliseconds(), s.Backoff.Milliseconds(), s.BackoffMax.Milliseconds(), s.RetryOn,
			s.Concurrency, s.PerScope, s.PerKey, s.Rate, s.RatePer.Milliseconds(), s.In.Raw, s.Out.Raw})
	}
	body, err := json.Marshal(all)
	if err != nil {
		return err
	}
	if err := db.New(e.Control).TopicsDeclare(ctx, body); err != nil {
		return fmt.Errorf("declare steps: %w", err)
	}
	return nil
}

func (e *Engine) topics() []string {
	all := make([]string, 0, len(e.steps))
	for t := range e.steps {
		all = append(all, t)
	}
	return all
}

// fetch claims jobs for free slots.
func (e *Engine) fetch(ctx context.Context, max int) ([]claim.Claim, error) {
	rows, err := db.New(e.Control).JobsAdmit(ctx, db.JobsAdmitParams{Me: e.Instance, Topics: e.topics(), Slots: int32(max), Pools: e.Pools, Labels: e.Labels})
	if err != nil {
		if ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded) { // River keeps it to itself
			e.Log.Warn("could not claim jobs", "error", err)
		}
		return nil, fmt.Errorf("claim jobs: %w", err)
	}
	if len(rows) > 0 {
		failpoint.At("job-admitted")
	}
	e.fetched.Add(int64(len(rows)))
	claims := make([]claim.Claim, len(rows))
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, r := range rows {
		claims[i] = claim.Claim{ID: r.Claim, Kind: r.Topic, Args: json.RawMessage(`{}`)}
		e.tasks[r.Claim] = &task{JobsAdmitRow: r, at: now, gone: e.early[r.Claim]}
	}
	if len(rows) > 0 {
		e.limited.Store(rows[0].Limited)
	}
	clear(e.early) // of claims that were settled, otherwise
	return claims, nil
}

// Known lists the claims that are this host's and not settled yet.
func (e *Engine) Known() []int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := make([]int64, 0, len(e.tasks))
	for id := range e.tasks {
		all = append(all, id)
	}
	return all
}

// Fetched is how many jobs were claimed since it was last asked.
func (e *Engine) Fetched() int64 { return e.fetched.Swap(0) }

// Running is how many there are.
func (e *Engine) Running() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.tasks)
}

// Any reports whether there are steps here at all.
func (e *Engine) Any() bool { return len(e.steps) > 0 }

// Cancelled ends the contexts of jobs that somebody cancelled. An answer that is lost on
// its way is given again: what came is said at the next question.
func (e *Engine) Cancelled(ctx context.Context) error {
	if e.Running() == 0 {
		return nil
	}
	e.mu.Lock()
	heard := e.heard
	e.mu.Unlock()
	ids, err := db.New(e.Control).JobsCancelled(ctx, db.JobsCancelledParams{Me: e.Instance, Heard: heard})
	if err != nil {
		return fmt.Errorf("look for cancelled jobs: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heard = ids
	for _, id := range ids {
		t := e.tasks[id]
		if t == nil {
			e.early[id] = true
			continue
		}
		t.gone = true
		if t.cancel != nil {
			t.cancel(errCancelled)
		}
	}
	return nil
}

func (e *Engine) forget(id int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.tasks, id)
}
