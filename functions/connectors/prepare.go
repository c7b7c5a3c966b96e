package connectors

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
)

// SourceHandedOff is the type of the event that a source was handed over: whoever
// extracts or indexes listens to it and asks the connector for the content. Its target is
// the instance, its data a HandedOff.
const SourceHandedOff = "connector.source.handed_off"

// HandedOff is what a SourceHandedOff event points to, and a job's input.
type HandedOff struct {
	Preparation int64 `json:"preparation"`
	Source      int64 `json:"source"`
}

// Prepared is what becomes of one source: handed off, or not any more.
type Prepared struct {
	HandedOff bool `json:"handed_off"`
}

// Preparation is how far a bulk preparation is (N58): what a route shows of it as
// asyncOperation. That it is done says that what was still selected was handed over,
// and nothing of what others do with it (N59).
type Preparation struct {
	ID                                  int64
	Scope, Instance                     string
	Stage                               string // queued, running, failed (in part) or done
	Sources, HandedOff, Failed, Retries int
	NextRetry                           time.Time       // zero: none waits for its time
	FailureCode                         platform.Reason // of one that failed, connectors.job_gone when that is not known any more; "" means none did
}

// SelectSource selects a source for AI, or not any more; one that has changed is selected
// again. ref says where it is: letters, digits and _.:/@#+=~-, at most 120.
func SelectSource(ctx context.Context, tx platform.Tx, instance, ref string, selected bool) (source int64, err error) {
	err = tx.QueryRow(ctx, "select connectors.select_source($1, $2, $3)", instance, ref, selected).Scan(&source)
	return source, err
}

// PrepareForAI hands the selected sources of an instance over, one job each, in the
// caller's transaction; refs, if any, names those that are meant. ok false: none is eligible,
// for nothing is selected, or all of it is handed over or on its way. At most 10,000 go
// at once; the others are eligible still.
func PrepareForAI(ctx context.Context, tx platform.Tx, instance string, refs ...string) (operation int64, ok bool, err error) {
	var id *int64
	if err := tx.QueryRow(ctx, "select connectors.prepare_for_ai($1, $2)", instance, refs).Scan(&id); err != nil || id == nil {
		return 0, false, err
	}
	return *id, true, nil
}

// ReadPreparation answers how far a preparation is. ok is false if there is none.
func ReadPreparation(ctx context.Context, tx platform.Tx, operation int64) (p Preparation, ok bool, err error) {
	p.ID = operation
	var next *time.Time
	var code *string
	err = tx.QueryRow(ctx, `select scope, instance, stage, sources, handed_off, failed, retries, next_retry_at, failure_code
		from connectors.read_preparation($1)`, operation).
		Scan(&p.Scope, &p.Instance, &p.Stage, &p.Sources, &p.HandedOff, &p.Failed, &p.Retries, &next, &code)
	if errors.Is(err, pgx.ErrNoRows) {
		return Preparation{}, false, nil
	}
	if next != nil {
		p.NextRetry = *next
	}
	if code != nil {
		p.FailureCode = platform.Reason(*code)
	}
	return p, err == nil, err
}

// Prepare hands one source over. A source that is not selected any more is not; one that
// was handed over is not again.
var Prepare = platform.Step[HandedOff, Prepared]{Topic: "job.connectors.prepare", Module: Module.Name, Handle: handOff}

func handOff(ctx context.Context, tx pgx.Tx, in HandedOff) (out Prepared, err error) {
	var instance, scope string
	var due bool
	err = tx.QueryRow(ctx, `
		select s.instance, i.scope, s.selected and s.handed_at is null
		from connectors.preparation_source p
		join connectors.source s on s.id = p.source
		join connectors.instance i on i.id = s.instance
		where p.source = $1 and p.preparation = $2 for update of s, p`, in.Source, in.Preparation).Scan(&instance, &scope, &due)
	if errors.Is(err, pgx.ErrNoRows) {
		return out, platform.Fail("connectors.no_source", err)
	} else if err != nil {
		return out, err
	} else if !due {
		_, err = tx.Exec(ctx, `update connectors.preparation_source set skipped_at = clock_timestamp() where source = $1 and preparation = $2 and handed_at is null`, in.Source, in.Preparation)
		return out, err
	}
	if _, err := tx.Exec(ctx, `
		with now as (update connectors.source set handed_at = clock_timestamp() where id = $1)
		update connectors.preparation_source set handed_at = clock_timestamp() where source = $1 and preparation = $2`, in.Source, in.Preparation); err != nil {
		return out, err
	}
	_, err = platform.Emit(ctx, tx, platform.NewEvent{Type: SourceHandedOff, Target: instance, Key: fmt.Sprintf("preparation-%d", in.Preparation), Scope: scope, Data: in})
	return Prepared{err == nil}, err
}

// PrepareStatus counts what a preparation has handed over (N43). Replayable: it counts
// what is there.
var PrepareStatus = platform.Subscription{
	Name:        "connectors.prepare_status",
	Module:      Module.Name,
	Events:      []string{SourceHandedOff},
	Owners:      platform.OwnedBy(Module.Name, "content_extraction", "ai"),
	From:        platform.FromZero,
	Replayable:  true,
	OnPoison:    platform.Park,
	HandleBatch: countHandedOff,
}

func countHandedOff(ctx context.Context, tx pgx.Tx, events []platform.Event) error {
	seen := map[int64]bool{}
	var ids []int64
	for i, e := range events {
		d, err := platform.Data[HandedOff](e)
		if err != nil {
			return &platform.BatchError{Index: i, Err: err}
		}
		if !seen[d.Preparation] {
			seen[d.Preparation] = true
			ids = append(ids, d.Preparation)
		}
	}
	// The rows are locked first, in one order: other shards may count the same ones.
	if _, err := tx.Exec(ctx, `select from connectors.preparation where id = any($1) order by id for update`, ids); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `
		update connectors.preparation p
		set handed_off = (select count(*) from connectors.preparation_source s where s.preparation = p.id and s.handed_at is not null)
		where p.id = any($1)`, ids)
	return err
}
