package claim

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Session is one transaction of a handler, on a connection of its own.
type Session struct {
	conn *pgxpool.Conn
}

// Acquire takes a connection out of the handlers' pool.
func Acquire(ctx context.Context, pool *pgxpool.Pool) (*Session, error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("no connection for the handler: %w", err)
	}
	return &Session{conn: conn}, nil
}

// Conn is the connection; nil after the end.
func (s *Session) Conn() *pgx.Conn { return s.conn.Conn() }

// Send sends statements in one round trip.
func (s *Session) Send(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return s.conn.SendBatch(ctx, b)
}

// Rollback ends the transaction without effect and gives the connection back; a
// connection that cannot roll back at once is closed.
func (s *Session) Rollback() {
	if s.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	c := s.conn.Conn()
	if !c.IsClosed() && c.PgConn().TxStatus() != 'I' {
		if _, err := c.Exec(ctx, "rollback"); err != nil {
			_ = c.Close(ctx)
		}
	}
	s.conn.Release()
	s.conn = nil
}

// Abandon takes the connection away from a handler that does not come back: nothing
// it still does on it has an effect.
func (s *Session) Abandon() {
	_ = s.conn.Hijack().PgConn().Conn().Close()
	s.conn = nil
}

// Commit sends the last statements and the commit in one round trip: nothing of
// this host runs between the fence and the commit. done is how many of them went well, so
// that a statement's failure is told from the commit's.
func (s *Session) Commit(ctx context.Context, last *pgx.Batch) (done int, err error) {
	last.Queue("commit")
	for _, q := range last.QueuedQueries {
		q.Exec(func(pgconn.CommandTag) error { done++; return nil })
	}
	if err := s.conn.SendBatch(ctx, last).Close(); err != nil {
		s.Rollback()
		return done, err
	}
	s.conn.Release()
	s.conn = nil
	return done, nil
}

// Open reports whether the transaction is still open and healthy, and nothing is
// left unread on its connection.
func Open(conn *pgx.Conn) bool {
	c := conn.PgConn()
	return c.TxStatus() == 'T' && !c.IsBusy()
}

// Panicked is a handler's panic as an error; its text goes to the redacting log.
type Panicked struct {
	Value any
	Stack []byte
}

func (p *Panicked) Error() string { return fmt.Sprintf("panic: %v\n%s", p.Value, p.Stack) }

// Safely calls a handler; a panic is an error.
func Safely(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &Panicked{v, debug.Stack()}
		}
	}()
	return f()
}

// Terminate ends a session of an instance in the server.
func Terminate(ctx context.Context, pool *pgxpool.Pool, instance string, pid int32) error {
	const sql = `select pg_terminate_backend(pid) from pg_stat_activity where pid = $1 and application_name = left($2, 63) and usename = current_user`
	_, err := pool.Exec(ctx, sql, pid, SessionName(instance))
	return err
}

// SessionName is the application_name of an instance's sessions, by which it is known
// which of them may be ended.
func SessionName(instance string) string { return "pgmill " + instance }

// AsModule makes what comes after it in a batch run as a module's role, if there is
// one: the last statement before a handler.
func AsModule(b *pgx.Batch, role string) {
	if role != "" {
		b.Queue("set local role " + pgx.Identifier{role}.Sanitize())
	}
}

// AsHost is a batch for what is sent after a handler: it begins as the host again,
// whatever the handler did to the role. What the module's tables defer to the commit runs
// as the module, as its statements did.
func AsHost(role string) *pgx.Batch {
	b := &pgx.Batch{}
	if role != "" {
		b.Queue("set constraints all immediate")
		b.Queue("reset role")
	}
	return b
}
