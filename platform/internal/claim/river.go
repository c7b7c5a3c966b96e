package claim

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"
)

// This file is the contract with River v0.51.2, pinned in go.mod and held by
// TestRiverContract: a driver that differs from the stock one in three methods, and whose rows of the job
// queue are made by us.

// driver is River's pgx driver with our bell in place of LISTEN and with a
// completion that never writes.
type driver struct {
	*riverpgxv5.Driver
	bells map[string]chan struct{} // by queue
	jobs  *Source
	pace  *pace // of jobs
}

func newDriver(pool *pgxpool.Pool) *driver {
	return &driver{Driver: riverpgxv5.New(pool), bells: map[string]chan struct{}{Queue: make(chan struct{}, 1), JobQueue: make(chan struct{}, 1)}}
}

// ring makes River fetch from a queue; it never blocks.
func (d *driver) ring(queue string) {
	select {
	case d.bells[queue] <- struct{}{}:
	default:
	}
}

func (d *driver) GetExecutor() riverdriver.Executor {
	return executor{d.Driver.GetExecutor(), d}
}

func (d *driver) GetListener(*riverdriver.GetListenenerParams) riverdriver.Listener {
	return listener{d.bells}
}

type executor struct {
	riverdriver.Executor
	driver *driver
}

// JobSetStateIfRunningMany is River's completion, guarded by the row's id and state
// only. Our settle has deleted the row already; where it has not, the lease was
// lost and the row is not ours to touch.
func (executor) JobSetStateIfRunningMany(context.Context, *riverdriver.JobSetStateIfRunningManyParams) ([]*rivertype.JobRow, error) {
	return nil, nil
}

// JobGetAvailable is River's fetch, which has no timeout of its own: on a connection
// that died without a word it would never fetch again. A claim whose answer was lost
// is handed back by the lease.
func (e executor) JobGetAvailable(ctx context.Context, params *riverdriver.JobGetAvailableParams) (*riverdriver.JobGetAvailableResult, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchPatience)
	defer cancel()
	if params.Queue == JobQueue {
		return e.bornRunning(ctx, params.MaxToLock)
	}
	return e.Executor.JobGetAvailable(ctx, params)
}

// bornRunning answers a fetch with claims that are this host's from the start.
func (e executor) bornRunning(ctx context.Context, max int) (*riverdriver.JobGetAvailableResult, error) {
	if e.driver.pace.wait(ctx, max) {
		e.driver.ring(JobQueue) // what is fetched must not be more than was asked for
		return &riverdriver.JobGetAvailableResult{}, nil
	}
	claims, err := e.driver.jobs.Fetch(ctx, max)
	if err != nil {
		return nil, err
	}
	if e.driver.pace.fetched(len(claims), max) {
		e.driver.ring(JobQueue)
	}
	now := time.Now()
	rows := make([]*rivertype.JobRow, len(claims))
	for i, c := range claims {
		rows[i] = &rivertype.JobRow{ID: c.ID, Kind: c.Kind, EncodedArgs: c.Args, Queue: JobQueue, State: rivertype.JobStateRunning, Attempt: 1,
			AttemptedAt: &now, CreatedAt: now, ScheduledAt: now, MaxAttempts: 1, Priority: 1, Metadata: []byte(`{}`)}
	}
	return &riverdriver.JobGetAvailableResult{Jobs: rows}, nil
}

// listener tells River's producers to fetch when a bell rings.
type listener struct{ bells map[string]chan struct{} }

func (listener) Close(context.Context) error            { return nil }
func (listener) Connect(context.Context) error          { return nil }
func (listener) Listen(context.Context, string) error   { return nil }
func (listener) Ping(context.Context) error             { return nil }
func (listener) Schema() string                         { return schema }
func (listener) SetAfterConnectExec(string)             {}
func (listener) Unlisten(context.Context, string) error { return nil }

func (l listener) WaitForNotification(ctx context.Context) (*riverdriver.Notification, error) {
	select {
	case <-l.bells[Queue]:
		return &riverdriver.Notification{Topic: "river_insert", Payload: `{"queue":"` + Queue + `"}`}, nil
	case <-l.bells[JobQueue]:
		return &riverdriver.Notification{Topic: "river_insert", Payload: `{"queue":"` + JobQueue + `"}`}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// args carries a claim's arguments undecoded; River's kind is "kind:function".
type args struct {
	kind string
	raw  json.RawMessage
}

func (a args) Kind() string                  { return a.kind }
func (a args) MarshalJSON() ([]byte, error)  { return a.raw, nil }
func (a *args) UnmarshalJSON(b []byte) error { a.raw = append(a.raw[:0], b...); return nil }

// worker runs one kind. It recovers panics and returns nil, always: error texts and
// panics would otherwise land raw in river_job.errors and in River's log.
type worker struct {
	river.WorkerDefaults[args]
	work func(ctx context.Context, c Claim)
}

func (w worker) Work(ctx context.Context, job *river.Job[args]) error {
	w.work(ctx, Claim{ID: job.ID, Kind: job.Kind, Args: job.Args.raw})
	return nil
}

var _ riverdriver.Driver[pgx.Tx] = (*driver)(nil)
