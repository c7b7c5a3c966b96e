package claim

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"
)

// This file is the contract with River v0.51.2, pinned in go.mod and held by
// TestRiverContract: a driver that differs from the stock one in three methods.

// driver is River's pgx driver with our bell in place of LISTEN and with a
// completion that never writes.
type driver struct {
	*riverpgxv5.Driver
	bell chan struct{}
}

func newDriver(pool *pgxpool.Pool) *driver {
	return &driver{Driver: riverpgxv5.New(pool), bell: make(chan struct{}, 1)}
}

func (d *driver) GetExecutor() riverdriver.Executor { return executor{d.Driver.GetExecutor()} }

func (d *driver) GetListener(*riverdriver.GetListenenerParams) riverdriver.Listener {
	return listener{d.bell}
}

type executor struct{ riverdriver.Executor }

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
	return e.Executor.JobGetAvailable(ctx, params)
}

// listener tells River's producers to fetch when the bell rings.
type listener struct{ bell chan struct{} }

func (listener) Close(context.Context) error            { return nil }
func (listener) Connect(context.Context) error          { return nil }
func (listener) Listen(context.Context, string) error   { return nil }
func (listener) Ping(context.Context) error             { return nil }
func (listener) Schema() string                         { return schema }
func (listener) SetAfterConnectExec(string)             {}
func (listener) Unlisten(context.Context, string) error { return nil }

func (l listener) WaitForNotification(ctx context.Context) (*riverdriver.Notification, error) {
	select {
	case <-l.bell:
		return &riverdriver.Notification{Topic: "river_insert", Payload: `{"queue":"` + Queue + `"}`}, nil
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
