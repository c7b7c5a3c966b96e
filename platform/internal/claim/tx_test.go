package claim_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform/internal/claim"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

// handlerTx is a transaction as a handler gets it, on a database with a table n(i);
// commit and rollback are what the host does afterwards.
type handlerTx struct {
	*claim.Tx
	t    *testing.T
	conn *pgx.Conn
}

func begin(t *testing.T) handlerTx {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgtest.Database(t, nil, "empty"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	exec(t, conn, "create table n (i int)")
	exec(t, conn, "begin")
	return handlerTx{claim.NewTx(conn), t, conn}
}

// commit ends the transaction and answers what is in the table.
func (h handlerTx) commit() []int32 {
	h.t.Helper()
	exec(h.t, h.conn, "commit")
	rows, err := h.conn.Query(h.t.Context(), "select i from n order by i")
	if err != nil {
		h.t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	if err != nil {
		h.t.Fatal(err)
	}
	return got
}

func same(a, b []int32) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func put1(t *testing.T, tx pgx.Tx, i int) {
	t.Helper()
	exec(t, tx, "insert into n values ($1)", i)
}

// A handler cannot end its transaction: that comes with the cursor.
func TestTxIsNotTheHandlersToEnd(t *testing.T) {
	t.Parallel()
	tx := begin(t)
	put1(t, tx, 1)
	for name, end := range map[string]func(context.Context) error{"Commit": tx.Commit, "Rollback": tx.Rollback} {
		if err := end(t.Context()); !errors.Is(err, claim.ErrNotYours) {
			t.Errorf("%s = %v, want ErrNotYours", name, err)
		}
	}
	if s := tx.conn.PgConn().TxStatus(); s != 'T' {
		t.Errorf("the transaction is %c, want T", s)
	}
	put1(t, tx, 2)
	if got := tx.commit(); !same(got, []int32{1, 2}) {
		t.Errorf("rows %v", got)
	}
}

// Begin is a savepoint, at any depth and one after the other.
func TestTxNests(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for _, tt := range []struct {
		name string
		do   func(t *testing.T, tx pgx.Tx)
		want []int32
	}{
		{"a child that commits", func(t *testing.T, tx pgx.Tx) {
			c := child(t, tx)
			put1(t, c, 1)
			end(t, c.Commit)
		}, []int32{1}},
		{"a child that rolls back takes its writes with it only", func(t *testing.T, tx pgx.Tx) {
			put1(t, tx, 1)
			c := child(t, tx)
			put1(t, c, 2)
			end(t, c.Rollback)
			put1(t, tx, 3)
		}, []int32{1, 3}},
		{"a child whose statement failed mends the transaction by rolling back", func(t *testing.T, tx pgx.Tx) {
			c := child(t, tx)
			if _, err := c.Exec(t.Context(), "select 1/0"); err == nil {
				t.Error("no error")
			}
			end(t, c.Rollback)
			put1(t, tx, 1)
		}, []int32{1}},
		{"grandchildren: the middle rolls back what the inner committed", func(t *testing.T, tx pgx.Tx) {
			a := child(t, tx)
			put1(t, a, 1)
			b := child(t, a)
			put1(t, b, 2)
			c := child(t, b)
			put1(t, c, 3)
			end(t, c.Commit)
			end(t, b.Rollback)
			put1(t, a, 4)
			end(t, a.Commit)
		}, []int32{1, 4}},
		{"siblings, in turn rolled back and committed", func(t *testing.T, tx pgx.Tx) {
			for i := range 6 {
				c := child(t, tx)
				put1(t, c, i)
				if i%2 == 0 {
					end(t, c.Rollback)
				} else {
					end(t, c.Commit)
				}
			}
		}, []int32{1, 3, 5}},
		{"pgx.BeginFunc", func(t *testing.T, tx pgx.Tx) {
			if err := pgx.BeginFunc(t.Context(), tx, func(c pgx.Tx) error { put1(t, c, 1); return nil }); err != nil {
				t.Error(err)
			}
			if err := pgx.BeginFunc(t.Context(), tx, func(c pgx.Tx) error { put1(t, c, 2); return boom }); !errors.Is(err, boom) {
				t.Error(err)
			}
		}, []int32{1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tx := begin(t)
			tt.do(t, tx)
			if got := tx.commit(); !same(got, tt.want) {
				t.Errorf("rows %v, want %v", got, tt.want)
			}
		})
	}
}

func child(t *testing.T, tx pgx.Tx) pgx.Tx {
	t.Helper()
	c, err := tx.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func end(t *testing.T, how func(context.Context) error) {
	t.Helper()
	if err := how(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Every method of a pgx.Tx reaches the transaction, on itself and on a child.
func TestTxDoesWhatATransactionDoes(t *testing.T) {
	t.Parallel()
	tx := begin(t)
	for base, on := range []pgx.Tx{tx, child(t, tx)} {
		ctx, b := t.Context(), base*10
		put1(t, on, b)
		rows, err := on.Query(ctx, "insert into n values ($1) returning i", b+1)
		if got, cerr := pgx.CollectOneRow(rows, pgx.RowTo[int]); err != nil || cerr != nil || got != b+1 {
			t.Errorf("Query: %d, %v, %v", got, err, cerr)
		}
		if got := one[int](t, on, "insert into n values ($1) returning i", b+2); got != b+2 {
			t.Errorf("QueryRow: %d", got)
		}
		batch := &pgx.Batch{}
		batch.Queue("insert into n values ($1)", b+3)
		if err := on.SendBatch(ctx, batch).Close(); err != nil {
			t.Errorf("SendBatch: %v", err)
		}
		if n, err := on.CopyFrom(ctx, pgx.Identifier{"n"}, []string{"i"}, pgx.CopyFromRows([][]any{{b + 4}, {b + 5}})); n != 2 || err != nil {
			t.Errorf("CopyFrom: %d, %v", n, err)
		}
		if _, err := on.Prepare(ctx, "put", "insert into n values ($1)"); err != nil {
			t.Errorf("Prepare: %v", err)
		}
		exec(t, on, "put", b+6)
		if on.Conn() != tx.conn {
			t.Error("Conn is another connection")
		}
		if s := tx.conn.PgConn().TxStatus(); s != 'T' {
			t.Errorf("the transaction is %c", s)
		}
	}
	if got := tx.commit(); !same(got, []int32{0, 1, 2, 3, 4, 5, 6, 10, 11, 12, 13, 14, 15, 16}) {
		t.Errorf("rows %v", got)
	}
}

// A child that has ended does nothing more: its statements would land in the
// transaction around it.
func TestTxThatHasEndedRefuses(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"committed", "rolled back"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			tx := begin(t)
			c := child(t, tx)
			if how == "committed" {
				end(t, c.Commit)
			} else {
				end(t, c.Rollback)
			}
			ctx := t.Context()
			batch := &pgx.Batch{}
			batch.Queue("insert into n values (4)")
			for name, f := range map[string]func() error{
				"Exec":      func() error { _, err := c.Exec(ctx, "insert into n values (1)"); return err },
				"Query":     func() error { _, err := c.Query(ctx, "insert into n values (2)"); return err },
				"QueryRow":  func() error { var i int; return c.QueryRow(ctx, "insert into n values (3) returning i").Scan(&i) },
				"SendBatch": func() error { return c.SendBatch(ctx, batch).Close() },
				"CopyFrom": func() error {
					_, err := c.CopyFrom(ctx, pgx.Identifier{"n"}, []string{"i"}, pgx.CopyFromRows([][]any{{5}}))
					return err
				},
				"Prepare":  func() error { _, err := c.Prepare(ctx, "p", "select 1"); return err },
				"Begin":    func() error { _, err := c.Begin(ctx); return err },
				"Commit":   func() error { return c.Commit(ctx) },
				"Rollback": func() error { return c.Rollback(ctx) },
			} {
				if err := f(); !errors.Is(err, pgx.ErrTxClosed) {
					t.Errorf("%s = %v, want ErrTxClosed", name, err)
				}
			}
			if got := tx.commit(); len(got) > 0 {
				t.Errorf("rows %v, want none", got)
			}
		})
	}
}
