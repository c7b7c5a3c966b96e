package platform

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// NewJob is a request for work on a topic. The checks are mill.submit_job's; zero
// values are the step's or the ones named here.
type NewJob struct {
	Topic string // job.…, at most 128 bytes
	Input any    // marshals to a JSON object, at most 2 MiB; nil means {}
	Scope string // install, provider or org:<id>; "" means install

	Priority     Priority      // "" means Interactive
	Delay        time.Duration // from now; RunAt, if later, counts
	RunAt        time.Time
	Deadline     time.Duration // from now; the job ends as TIMEOUT whatever it is at. 0: none
	MaxRuntime   time.Duration // of one attempt, never more than the step's or its topic's; 0 means that
	MaxQueueWait time.Duration // after which a job that no one has taken ends as TIMEOUT; 0 means an hour
	MaxAttempts  int           // 0 means the step's
	Cost         int           // how much of its scope's turn it takes, 1 to 1000; 0 means 1

	Key            string        // jobs of one key share the step's PerKey
	UniqueKey      string        // one job a key at a time; another one is not made, the first is answered
	Debounce       time.Duration // with UniqueKey: the job starts so long after the last submit, with its input
	IdempotencyKey string        // a repeated submit answers the first job, for seven days, per scope

	Labels          map[string]string // shown, never a demand
	Placement       map[string]string // labels that the worker must have
	Requires        []string          // what the pool must offer
	PreferredPool   string            // one of the topic's
	PreferredWorker string            // others have the job while that one does not live, or may not run it
	TraceID         string            // "" means the context's (WithTrace), or the transaction's, or a new one
}

// Priority orders lanes; within one priority scopes take turns.
type Priority string

// The priorities.
const (
	Critical    Priority = "critical"
	Interactive Priority = "interactive"
	Batch       Priority = "batch"
)

// Submitted says what became of a submit. Outcome is accepted, merged (into Job, which
// was there) or rejected (Job was in the way; Reason says by which gate).
type Submitted struct {
	Job, Outcome, Reason string
}

// ErrBadJob is what Enqueue refuses a malformed job with; ErrSize and ErrKeyReused as
// of Emit.
var ErrBadJob = errors.New("malformed job")

// Enqueue submits jobs in the caller's transaction, all or nothing: they exist if and
// when it commits (C13). One round trip, whatever their number; at most 10,000.
func Enqueue(ctx context.Context, tx Tx, jobs ...NewJob) ([]Submitted, error) {
	if len(jobs) == 0 {
		return nil, nil
	}
	if j := jobs[0]; len(jobs) == 1 && j.UniqueKey == "" && j.IdempotencyKey == "" {
		return enqueueOne(ctx, tx, j)
	}
	items := make([]map[string]any, len(jobs))
	for i, j := range jobs {
		items[i] = j.item(ctx)
	}
	body, err := marshalJob(items)
	if err != nil {
		return nil, err
	}
	const sql = `select coalesce(jsonb_agg(jsonb_build_object('Job', job_id, 'Outcome', outcome, 'Reason', coalesce(reason, ''))), '[]')::text
		from mill.submit_jobs($1::text::jsonb)`
	var answer string
	if err := tx.QueryRow(ctx, sql, body).Scan(&answer); err != nil {
		return nil, enqueueError(err)
	}
	var all []Submitted
	return all, json.Unmarshal([]byte(answer), &all)
}

// enqueueOne submits a job that has no gate, so that there is but one outcome.
func enqueueOne(ctx context.Context, tx Tx, j NewJob) ([]Submitted, error) {
	options := j.item(ctx)
	delete(options, "topic")
	delete(options, "input")
	input, err := "{}", error(nil)
	if j.Input != nil {
		if input, err = marshalJob(j.Input); err != nil {
			return nil, err
		}
	}
	how, err := marshalJob(options)
	if err != nil {
		return nil, err
	}
	one := Submitted{Outcome: "accepted"}
	if err := tx.QueryRow(ctx, "select mill.submit_job($1, $2::text::jsonb, $3::text::jsonb)", j.Topic, input, how).Scan(&one.Job); err != nil {
		return nil, enqueueError(err)
	}
	return []Submitted{one}, nil
}

func marshalJob(v any) (string, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("%w: its input cannot be marshalled: %w", ErrBadJob, err)
	}
	return string(body), nil
}

func (j NewJob) item(ctx context.Context) map[string]any {
	item := map[string]any{"topic": j.Topic}
	if j.Input != nil {
		item["input"] = j.Input
	}
	text := func(name, v string) {
		if v != "" {
			item[name] = v
		}
	}
	ms := func(name string, d time.Duration) {
		if d != 0 {
			item[name] = d.Milliseconds()
		}
	}
	text("scope", j.Scope)
	text("priority", string(j.Priority))
	text("key", j.Key)
	text("unique_key", j.UniqueKey)
	text("idempotency_key", j.IdempotencyKey)
	text("preferred_pool", j.PreferredPool)
	text("preferred_worker", j.PreferredWorker)
	text("trace_id", cmp.Or(j.TraceID, Trace(ctx)))
	ms("delay_ms", j.Delay)
	ms("deadline_ms", j.Deadline)
	ms("max_runtime_ms", j.MaxRuntime)
	ms("max_queue_wait_ms", j.MaxQueueWait)
	ms("debounce_ms", j.Debounce)
	if !j.RunAt.IsZero() {
		item["run_at"] = j.RunAt.UTC().Format(time.RFC3339Nano)
	}
	if j.MaxAttempts != 0 {
		item["max_attempts"] = j.MaxAttempts
	}
	if j.Cost != 0 {
		item["cost"] = j.Cost
	}
	if len(j.Labels) > 0 {
		item["labels"] = j.Labels
	}
	if len(j.Placement) > 0 {
		item["placement"] = j.Placement
	}
	if len(j.Requires) > 0 {
		item["requires"] = j.Requires
	}
	return item
}

func enqueueError(err error) error {
	var pe interface{ SQLState() string }
	if !errors.As(err, &pe) {
		return fmt.Errorf("enqueue: %w", err)
	}
	kind, known := map[string]error{
		"MI001": ErrBadJob, "MI002": ErrSize, "MI004": ErrKeyReused,
		"22P05": ErrBadJob, "22021": ErrBadJob, "22P02": ErrBadJob, // NUL or a lone surrogate: Postgres itself refuses them
	}[pe.SQLState()]
	if !known {
		return fmt.Errorf("enqueue: %w", err)
	}
	return fmt.Errorf("%w: %w", kind, err)
}
