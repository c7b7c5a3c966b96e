package claim

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrNotYours is returned by Commit and Rollback of a handler's transaction: it
// commits once, with the cursor, after the handler returns.
var ErrNotYours = errors.New("the handler's transaction is committed by the host; return an error to roll it back")

// Tx is the transaction a handler gets: everything a pgx.Tx does on a connection
// whose transaction was begun by the caller, but ending it. Begin is a savepoint.
type Tx struct {
	conn  *pgx.Conn
	level int // 0: the handler's own; deeper: a savepoint
	done  bool
}

var _ pgx.Tx = (*Tx)(nil)

// NewTx wraps a connection with an open transaction.
func NewTx(conn *pgx.Conn) *Tx { return &Tx{conn: conn} }

// Begin makes a savepoint.
func (t *Tx) Begin(ctx context.Context) (pgx.Tx, error) {
	if t.done {
		return nil, pgx.ErrTxClosed
	}
	child := &Tx{conn: t.conn, level: t.level + 1}
	if _, err := t.conn.Exec(ctx, fmt.Sprintf("savepoint pgmill_%d", child.level)); err != nil {
		return nil, err
	}
	return child, nil
}

// Commit releases a savepoint; on the handler's own transaction it refuses.
func (t *Tx) Commit(ctx context.Context) error { return t.end(ctx, "release savepoint pgmill_%d") }

// Rollback goes back to a savepoint; on the handler's own transaction it refuses.
func (t *Tx) Rollback(ctx context.Context) error {
	return t.end(ctx, "rollback to savepoint pgmill_%d")
}

func (t *Tx) end(ctx context.Context, how string) error {
	switch {
	case t.level == 0:
		return ErrNotYours
	case t.done:
		return pgx.ErrTxClosed
	}
	t.done = true
	_, err := t.conn.Exec(ctx, fmt.Sprintf(how, t.level))
	return err
}

// Exec runs a statement.
func (t *Tx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if t.done {
		return pgconn.CommandTag{}, pgx.ErrTxClosed
	}
	return t.conn.Exec(ctx, sql, args...)
}

// Query runs a query.
func (t *Tx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if t.done {
		return closedRows{}, pgx.ErrTxClosed
	}
	return t.conn.Query(ctx, sql, args...)
}

// QueryRow runs a query for one row.
func (t *Tx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if t.done {
		return closedRows{}
	}
	return t.conn.QueryRow(ctx, sql, args...)
}

// SendBatch sends queued statements in one round trip.
func (t *Tx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if t.done {
		return closedBatch{}
	}
	return t.conn.SendBatch(ctx, b)
}

// CopyFrom bulk-inserts rows.
func (t *Tx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	if t.done {
		return 0, pgx.ErrTxClosed
	}
	return t.conn.CopyFrom(ctx, table, columns, src)
}

// Prepare prepares a statement.
func (t *Tx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if t.done {
		return nil, pgx.ErrTxClosed
	}
	return t.conn.Prepare(ctx, name, sql)
}

// LargeObjects is not supported: it needs pgx's own transaction type.
func (t *Tx) LargeObjects() pgx.LargeObjects { return pgx.LargeObjects{} }

// Conn is the connection, for type registration; do not end the transaction on it.
func (t *Tx) Conn() *pgx.Conn { return t.conn }
