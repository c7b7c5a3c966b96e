package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/labstack/echo/v4"

	"github.com/pgmill/pgmill/platform/internal/db"
)

// sqlScope makes the rest of the batch, which is one transaction, the caller's.
const sqlScope = "select set_config('role', 'pgmill_api', true), set_config('pgmill.scope', $1, true), set_config('pgmill.actor', $2, true)"

// scoped runs each statement as pgmill_api in the caller's scope, in one round trip.
type scoped struct {
	pool *pgxpool.Pool
	who  caller
}

// scoped is the database as whoever sent this request sees it.
func (s *Server) scoped(c echo.Context) (scoped, error) {
	pool := s.Pool()
	if pool == nil {
		return scoped{}, refuse(http.StatusServiceUnavailable, "starting", "the host has no database yet; try again")
	}
	return scoped{pool, callerOf(c)}, nil
}

// db is the statements of the API for whoever sent this request.
func (s *Server) db(c echo.Context) (*db.Queries, error) {
	as, err := s.scoped(c)
	if err != nil {
		return nil, err
	}
	return db.New(as), nil
}

// SendBatch sends statements behind the scope.
func (s scoped) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	all := &pgx.Batch{}
	all.Queue(sqlScope, s.who.Scope, s.who.Name)
	all.QueuedQueries = append(all.QueuedQueries, b.QueuedQueries...)
	results := s.pool.SendBatch(ctx, all)
	_, _ = results.Exec() // what went wrong is answered to whoever reads on
	return results
}

// Query sends one statement. The rows must be read to their end or closed; that it
// committed is known only then, from Err.
func (s scoped) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	b := &pgx.Batch{}
	b.Queue(sql, args...)
	results := s.SendBatch(ctx, b)
	rows, err := results.Query()
	if err != nil {
		return nil, errors.Join(err, results.Close())
	}
	return &scopedRows{Rows: rows, results: results}, nil
}

// QueryRow is Query for one row.
func (s scoped) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := s.Query(ctx, sql, args...)
	return scopedRow{rows, err}
}

// Exec is Query for none.
func (s scoped) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	rows, err := s.Query(ctx, sql, args...)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	rows.Close()
	return rows.CommandTag(), rows.Err()
}

type scopedRows struct {
	pgx.Rows
	results pgx.BatchResults
	closed  bool
	err     error
}

func (r *scopedRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

func (r *scopedRows) Close() {
	if !r.closed {
		r.closed = true
		r.Rows.Close()
		r.err = errors.Join(r.Rows.Err(), r.results.Close())
	}
}

func (r *scopedRows) Err() error { return r.err }

type scopedRow struct {
	rows pgx.Rows
	err  error
}

func (r scopedRow) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	if !r.rows.Next() {
		return errors.Join(r.rows.Err(), pgx.ErrNoRows)
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}
