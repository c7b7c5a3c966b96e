package platform

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// NewEvent is what an author emits. The checks are mill.emit's: lengths in bytes,
// charsets, and no content (N5): ids and references only.
type NewEvent struct {
	Type   string // lower-case words joined by dots, at most 128 bytes
	Target string // letters, digits and _.:/@#+=~-, at most 200 bytes
	Key    string // what is kept in order; "" means by target; at most 200 bytes
	Data   any    // marshals to a JSON object, at most 4 KiB, strings at most 256 bytes; nil means {}
	Scope  string // install, provider or org:<id>; "" means install

	// IdempotencyKey makes a repeated emit return the first event's id, for seven
	// days, per scope and type. "" means none.
	IdempotencyKey string
	TraceID        string // letters, digits and _.:-, at most 128; "" means the context's (WithTrace), or the transaction's
}

// Tx is the caller's own transaction: a pgx.Tx as it is, or SQLTx(*sql.Tx).
type Tx interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// SQLTx makes a database/sql transaction fit for Emit.
func SQLTx(tx *sql.Tx) Tx { return sqlTx{tx} }

type sqlTx struct{ tx *sql.Tx }

func (t sqlTx) QueryRow(ctx context.Context, query string, args ...any) pgx.Row {
	return t.tx.QueryRowContext(ctx, query, args...)
}

// Errors of Emit, to be used with errors.Is. After one the transaction is aborted,
// as after any failed statement.
var (
	ErrCharset        = errors.New("malformed event")                          // SQLSTATE MI001
	ErrSize           = errors.New("event too large")                          // MI002
	ErrNotPointer     = errors.New("event data must be pointers")              // MI003
	ErrKeyReused      = errors.New("idempotency key reused for another event") // MI004
	errUnmarshallable = errors.New("event data cannot be marshalled to a JSON object")
)

// Emit records events in the caller's transaction: they exist if and when it
// commits (N2). It returns their ids in order; one event is one round trip, and so
// are many.
func Emit(ctx context.Context, tx Tx, events ...NewEvent) ([]int64, error) {
	switch len(events) {
	case 0:
		return nil, nil
	case 1:
		sql, args, err := emitOne(events[0].of(ctx))
		if err != nil {
			return nil, err
		}
		var id int64
		if err := tx.QueryRow(ctx, sql, args...).Scan(&id); err != nil {
			return nil, emitError(err)
		}
		return []int64{id}, nil
	}
	all := make([]map[string]any, len(events))
	for i, e := range events {
		item, err := e.of(ctx).item()
		if err != nil {
			return nil, fmt.Errorf("event %d: %w", i, err)
		}
		all[i] = item
	}
	body, err := json.Marshal(all)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotPointer, err)
	}
	var ids string
	if err := tx.QueryRow(ctx, "select array_to_string(mill.emit_many($1::text::jsonb), ',')", string(body)).Scan(&ids); err != nil {
		return nil, emitError(err)
	}
	return parseIDs(ids)
}

// QueueEmit adds an emit to a pgx batch, so that a whole business transaction can
// be one round trip. The batch's results carry the id as a bigint. It knows no context:
// the trace is the event's own, or the transaction's.
func QueueEmit(b *pgx.Batch, e NewEvent) (*pgx.QueuedQuery, error) {
	sql, args, err := emitOne(e)
	if err != nil {
		return nil, err
	}
	return b.Queue(sql, args...), nil
}

func emitOne(e NewEvent) (string, []any, error) {
	data, err := e.data()
	if err != nil {
		return "", nil, err
	}
	scope := e.Scope
	if scope == "" {
		scope = "install"
	}
	if e.clean(scope, data) {
		switch { // a parameter that is not there costs nothing
		case e.TraceID != "":
			return "insert into mill.outbox (type, target, data, key, trace_id) values ($1, $2, $3::text::jsonb, $4, $5) returning id",
				[]any{e.Type, e.Target, data, null(e.Key), e.TraceID}, nil
		case e.Key == "":
			return "insert into mill.outbox (type, target, data) values ($1, $2, $3::text::jsonb) returning id",
				[]any{e.Type, e.Target, data}, nil
		}
		return "insert into mill.outbox (type, target, data, key) values ($1, $2, $3::text::jsonb, $4) returning id",
			[]any{e.Type, e.Target, data, e.Key}, nil
	}
	if e.IdempotencyKey == "" && e.TraceID == "" {
		return "select mill.emit($1, $2, $3, $4::text::jsonb, $5)", []any{e.Type, e.Target, null(e.Key), data, scope}, nil
	}
	options := map[string]string{}
	if e.IdempotencyKey != "" {
		options["idempotency_key"] = e.IdempotencyKey
	}
	if e.TraceID != "" {
		options["trace_id"] = e.TraceID
	}
	o, err := json.Marshal(options)
	if err != nil {
		return "", nil, err
	}
	return "select mill.emit($1, $2, $3, $4::text::jsonb, $5, $6::text::jsonb)", []any{e.Type, e.Target, null(e.Key), data, scope, string(o)}, nil
}

// of is the event in the trace of ctx, if it has none of its own.
func (e NewEvent) of(ctx context.Context) NewEvent {
	e.TraceID = cmp.Or(e.TraceID, Trace(ctx))
	return e
}

func (e NewEvent) data() (string, error) {
	if e.Data == nil {
		return "{}", nil
	}
	b, err := json.Marshal(e.Data)
	if err != nil {
		return "", fmt.Errorf("%w: %w: %w", ErrNotPointer, errUnmarshallable, err)
	}
	return string(b), nil
}

func (e NewEvent) item() (map[string]any, error) {
	data, err := e.data()
	if err != nil {
		return nil, err
	}
	item := map[string]any{"type": e.Type, "target": e.Target, "data": json.RawMessage(data)}
	for name, v := range map[string]string{"key": e.Key, "scope": e.Scope, "idempotency_key": e.IdempotencyKey, "trace_id": e.TraceID} {
		if v != "" {
			item[name] = v
		}
	}
	return item, nil
}

func null(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func parseIDs(list string) ([]int64, error) {
	parts := strings.Split(list, ",")
	ids := make([]int64, len(parts))
	for i, p := range parts {
		id, err := strconv.ParseInt(p, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("event ids: %w", err)
		}
		ids[i] = id
	}
	return ids, nil
}

// emitError gives the refusals of mill.emit their Go names.
func emitError(err error) error {
	var pe interface{ SQLState() string } // pgx's errors and those of other drivers behind SQLTx
	if !errors.As(err, &pe) {
		return fmt.Errorf("emit: %w", err)
	}
	kind, known := map[string]error{
		"MI001": ErrCharset, "MI002": ErrSize, "MI003": ErrNotPointer, "MI004": ErrKeyReused,
		"22P05": ErrCharset, "22021": ErrCharset, "22P02": ErrCharset, // NUL or a lone surrogate: Postgres itself refuses them
	}[pe.SQLState()]
	if !known {
		return fmt.Errorf("emit: %w", err)
	}
	return fmt.Errorf("%w: %w", kind, err)
}
