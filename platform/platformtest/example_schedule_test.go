package platformtest_test

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/host"
	"github.com/pgmill/pgmill/platform/platformtest"
)

// closeDay is the function under test.
var closeDay = platform.Schedule{
	Name:   "stock.close_day",
	Cron:   "30 2 * * *",
	Zone:   "Europe/Berlin",
	Owners: platform.OwnedBy("stock"),
	Handle: func(ctx context.Context, tx pgx.Tx, t platform.Tick) error {
		_, err := tx.Exec(ctx, "insert into closed values ($1)", t.At.AddDate(0, 0, -1).Format(time.DateOnly))
		return err
	},
}

// A test runs a schedule's handler on any tick with Tick, or starts a host and
// triggers it.
func Example_schedule() {
	t := platformtest.NewT() // in a test: the *testing.T
	defer t.End()

	dsn := platformtest.DSN(t)
	db := platformtest.Pool(t, dsn)
	if _, err := db.Exec(t.Context(), "create table closed (day date)"); err != nil {
		t.Fatalf("create table: %v", err)
	}

	// One tick, no host.
	berlin, _ := time.LoadLocation("Europe/Berlin")
	err := platformtest.Tick(t, db, closeDay, platform.Tick{At: time.Date(2026, 3, 29, 3, 0, 0, 0, berlin)})
	var day time.Time
	_ = db.QueryRow(t.Context(), "select day from closed").Scan(&day)
	fmt.Println("closed:", day.Format(time.DateOnly), err)

	// The whole path: a host, a tick, and the row.
	w := &host.Worker{Database: dsn, Registry: platform.NewRegistry()}
	if err := w.Registry.Add(closeDay); err != nil {
		t.Fatalf("register: %v", err)
	}
	platformtest.HostWith(t, w)
	platformtest.Trigger(t, db, closeDay.Name)
	platformtest.WaitFor(t, db, "select count(*) = 2 from closed")
	fmt.Println("closed: yesterday")

	// Output:
	// closed: 2026-03-28 <nil>
	// closed: yesterday
}
