package platform

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Step is a function that does the jobs of one topic. In and Out are Go types that
// marshal to JSON: their schemas are what is checked at the door and at the end.
// json.RawMessage takes and gives anything.
type Step[In, Out any] struct {
	// Topic is what jobs are submitted to: words joined by dots, the first one job.
	Topic string
	// Module owns the function; "" means the second word of Topic. If a Module of that
	// name is registered, Handle runs as its role.
	Module string

	// Handle does a job in the transaction that ends it: what it writes through tx and
	// emits commits with the job's end, so the effect is exactly once in Postgres, and is of
	// the job's trace.
	// Exactly one of Handle and Run is set.
	Handle func(ctx context.Context, tx pgx.Tx, in In) (Out, error)
	// Run does a job that leaves the process, without a transaction; its end is settled
	// after. It may run more than once: a.Key is what the outside can tell repeats by.
	Run func(ctx context.Context, a *Attempt, in In) (Out, error)

	// MaxAttempts bounds the tries of a job that does not say; 0 means 3. A host that
	// dies with a job counts as one. What mill.set_timeouts says of the topic counts before
	// this and Timeout.
	MaxAttempts int
	// Backoff is the rest after the first failure, doubled each time up to BackoffMax, up
	// to a quarter less at random; 0 means 1 s and 5 min.
	Backoff, BackoffMax time.Duration
	// RetryOn names the reasons that are tried again; nil means any. That a host died is.
	RetryOn []Reason
	// Timeout bounds one attempt; 0 means 30 s, of a Run ten minutes. A job may ask for less.
	Timeout time.Duration
	// Concurrency, PerScope and PerKey bound how many run at once in all hosts together:
	// of the topic, of each scope, of each key in a scope. 0 means no bound.
	Concurrency, PerScope, PerKey int
	// Rate bounds how many start in each RatePer, in all hosts together; 0 means no bound,
	// RatePer 0 a second.
	Rate    int
	RatePer time.Duration
}

// Attempt is one try of a job, as Run sees it.
type Attempt struct {
	Job     string // the job's id
	Number  int    // from 1
	Key     string // the same in each attempt of the job: an idempotency key for the outside
	Scope   string
	TraceID string

	progress func(ctx context.Context, percent int, message string) error
}

// Progress says how far the job is, 0 to 100, with a word of at most 200 characters;
// what is more is cut off, control characters are blanks. It is shown, and lost if it cannot be written; the error may be ignored.
func (a *Attempt) Progress(ctx context.Context, percent int, message string) error {
	if a.progress == nil {
		return nil
	}
	return a.progress(ctx, percent, message)
}

// NewAttempt is for engines and tests; progress may be nil.
func NewAttempt(a Attempt, progress func(ctx context.Context, percent int, message string) error) *Attempt {
	a.progress = progress
	return &a
}

// StepSpec is a step as engines see it: any In and Out, as JSON.
type StepSpec struct {
	Topic, Module                 string
	MaxAttempts                   int
	Backoff, BackoffMax, Timeout  time.Duration
	RetryOn                       []Reason
	Concurrency, PerScope, PerKey int
	Rate                          int
	RatePer                       time.Duration
	In, Out                       Schema // of what comes and of what goes

	// Handle or Run, the other is nil.
	Handle func(ctx context.Context, tx pgx.Tx, in json.RawMessage) (json.RawMessage, error)
	Run    func(ctx context.Context, a *Attempt, in json.RawMessage) (json.RawMessage, error)
}

// MaxOutput is how many bytes of output stand in the job itself; what is larger is a
// blob that the job points to, of at most MaxBlob.
const (
	MaxOutput = 256 << 10
	MaxBlob   = 32 << 20
)

var topicForm = regexp.MustCompile(`^job(\.[A-Za-z0-9_-]+)+$`)

// Describe answers what the declaration says; a step is known by its topic.
func (s Step[In, Out]) Describe() Description {
	return Description{Name: s.Topic, Kind: "step", Module: s.Module, Listens: []string{s.Topic}}
}

func (s Step[In, Out]) spec() StepSpec {
	timeout := 30 * time.Second
	if s.Run != nil {
		timeout = 10 * time.Minute
	}
	return StepSpec{
		Topic: s.Topic, Module: cmp.Or(s.Module, strings.SplitN(s.Topic+"..", ".", 3)[1]),
		MaxAttempts: cmp.Or(s.MaxAttempts, 3), Backoff: cmp.Or(s.Backoff, time.Second), BackoffMax: cmp.Or(s.BackoffMax, 5*time.Minute),
		Timeout: cmp.Or(s.Timeout, timeout), RetryOn: s.RetryOn,
		Concurrency: s.Concurrency, PerScope: s.PerScope, PerKey: s.PerKey, Rate: s.Rate, RatePer: cmp.Or(s.RatePer, time.Second),
	}
}

// describe fills in the zero values and says in one line what is wrong, if anything.
func (s Step[In, Out]) describe() (Function, error) {
	if (s.Handle == nil) == (s.Run == nil) {
		return nil, fmt.Errorf("step %s: set exactly one of Handle and Run", s.Topic)
	}
	spec := s.spec()
	var err error
	if spec.In, err = SchemaOf[In](); err != nil {
		return nil, fmt.Errorf("step %s: its input type: %w", s.Topic, err)
	}
	if spec.Out, err = SchemaOf[Out](); err != nil {
		return nil, fmt.Errorf("step %s: its output type: %w", s.Topic, err)
	}
	if s.Handle != nil {
		spec.Handle = func(ctx context.Context, tx pgx.Tx, raw json.RawMessage) (json.RawMessage, error) {
			in, err := decode[In](spec.In, raw)
			if err != nil {
				return nil, err
			}
			out, err := s.Handle(ctx, tx, in)
			return encode(spec.Out, out, err)
		}
	} else {
		spec.Run = func(ctx context.Context, a *Attempt, raw json.RawMessage) (json.RawMessage, error) {
			in, err := decode[In](spec.In, raw)
			if err != nil {
				return nil, err
			}
			out, err := s.Run(ctx, a, in)
			return encode(spec.Out, out, err)
		}
	}
	return spec.describe()
}

func (s StepSpec) describe() (Function, error) {
	bad := ""
	switch {
	case !topicForm.MatchString(s.Topic) || len(s.Topic) > 128:
		return nil, fmt.Errorf("step %q: a topic is words joined by dots, the first one job, at most 128 bytes", s.Topic)
	case !nameForm.MatchString(strings.ToLower(strings.ReplaceAll(s.Module, "-", "_"))):
		bad = fmt.Sprintf("module %q is not lower-case words joined by dots", s.Module)
	case s.MaxAttempts < 1 || s.MaxAttempts > 100:
		bad = fmt.Sprintf("MaxAttempts is %d; 1 to 100", s.MaxAttempts)
	case s.Backoff < 0 || s.BackoffMax < s.Backoff:
		bad = fmt.Sprintf("Backoff is %v, BackoffMax %v; the second is not the smaller", s.Backoff, s.BackoffMax)
	case s.Timeout < 0:
		bad = fmt.Sprintf("Timeout is %v; it cannot be negative", s.Timeout)
	case s.Concurrency < 0 || s.PerScope < 0 || s.PerKey < 0 || s.Rate < 0 || s.RatePer < time.Millisecond:
		bad = "Concurrency, PerScope, PerKey and Rate cannot be negative, RatePer is at least a millisecond"
	}
	for _, r := range s.RetryOn {
		if bad == "" && !r.Valid() {
			bad = fmt.Sprintf("RetryOn %q is no reason code", r)
		}
	}
	if bad != "" {
		return nil, fmt.Errorf("step %s: %s", s.Topic, bad)
	}
	return s, nil
}

// Describe answers what the registry and mill.functions show.
func (s StepSpec) Describe() Description {
	return Description{Name: s.Topic, Kind: "step", Module: s.Module, Listens: []string{s.Topic}}
}

func decode[In any](schema Schema, raw json.RawMessage) (in In, err error) {
	if faults := schema.Check(raw); len(faults) > 0 {
		return in, Fail(ReasonSchema, faults)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber() // what goes into an any keeps every digit (F28)
	if err := d.Decode(&in); err != nil {
		return in, Fail(ReasonSchema, err)
	}
	return in, nil
}

func encode[Out any](schema Schema, out Out, err error) (json.RawMessage, error) {
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(out)
	switch {
	case err != nil:
		return nil, Fail(ReasonBadOutput, err)
	case len(raw) > MaxBlob:
		return nil, Fail(ReasonBadOutput, fmt.Errorf("the output has %d bytes; at most %d: store it elsewhere and point to it", len(raw), MaxBlob))
	}
	if faults := schema.Check(raw); len(faults) > 0 {
		return nil, Fail(ReasonBadOutput, faults)
	}
	return raw, nil
}
