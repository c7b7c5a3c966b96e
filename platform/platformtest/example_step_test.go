package platformtest_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/host"
	"github.com/pgmill/pgmill/platform/platformtest"
)

// Bill and Receipt are what the step takes and gives; their schemas are checked.
type Bill struct {
	Order int64 `json:"order"`
	Cents int64 `json:"cents"`
}

// Receipt is the step's output.
type Receipt struct {
	Number int64 `json:"number"`
}

// settle is the function under test: what it writes commits with the job's end.
var settle = platform.Step[Bill, Receipt]{
	Topic: "job.shop.settle",
	Handle: func(ctx context.Context, tx pgx.Tx, b Bill) (r Receipt, err error) {
		if b.Cents <= 0 {
			return r, platform.Fail("shop.nothing_due", nil) // final: a dead letter
		}
		return r, tx.QueryRow(ctx, "insert into receipt (order_id) values ($1) returning number", b.Order).Scan(&r.Number)
	},
}

// A test submits jobs in a transaction, starts a host and waits for what becomes of
// them.
func Example_step() {
	t := platformtest.NewT() // in a test: the *testing.T
	defer t.End()

	dsn := platformtest.DSN(t)
	db := platformtest.Pool(t, dsn)
	if _, err := db.Exec(t.Context(), "create table receipt (number bigint generated always as identity, order_id bigint)"); err != nil {
		t.Fatalf("create table: %v", err)
	}
	w := &host.Worker{Database: dsn, Registry: platform.NewRegistry()}
	if err := w.Registry.Add(settle); err != nil {
		t.Fatalf("register: %v", err)
	}
	platformtest.HostWith(t, w)

	err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
		_, err := platform.Enqueue(t.Context(), tx,
			platform.NewJob{Topic: "job.shop.settle", Input: Bill{Order: 7, Cents: 1250}},
			platform.NewJob{Topic: "job.shop.settle", Input: Bill{Order: 8}})
		return err
	})
	if err != nil {
		t.Fatalf("submit: %v", err)
	}
	platformtest.WaitFor(t, db, "select count(*) = 2 from mill.jobs where state in ('SUCCEEDED', 'FAILED')")
	rows, err := db.Query(t.Context(), "select topic || ' ' || state || coalesce(' ' || reason, '') from mill.jobs order by state desc")
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	for _, line := range all {
		fmt.Println(line)
	}

	// Output:
	// job.shop.settle SUCCEEDED
	// job.shop.settle FAILED shop.nothing_due
}
