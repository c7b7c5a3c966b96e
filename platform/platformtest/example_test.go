package platformtest_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/platformtest"
)

// OrderPlaced is what the event orders.placed points to.
type OrderPlaced struct {
	OrderID int64 `json:"order_id"`
}

// reserve is the function under test.
var reserve = platform.Subscription{
	Name:   "stock.reserve",
	Events: []string{"orders.placed"},
	Owners: platform.OwnedBy("stock"),
	Handle: func(ctx context.Context, tx pgx.Tx, e platform.Event) error {
		placed, err := platform.Data[OrderPlaced](e)
		if err != nil {
			return err
		}
		if placed.OrderID <= 0 {
			return platform.Fail("stock.no_order", nil)
		}
		_, err = tx.Exec(ctx, "insert into reservation values ($1)", placed.OrderID)
		return err
	},
}

// A test runs a function on one event with Handle, or starts a host, emits and
// waits for the row that the function writes.
func Example() {
	t := platformtest.NewT() // in a test: the *testing.T
	defer t.End()

	dsn := platformtest.DSN(t)
	db := platformtest.Pool(t, dsn)
	if _, err := db.Exec(t.Context(), "create table reservation (order_id bigint primary key)"); err != nil {
		t.Fatalf("create table: %v", err)
	}

	// One function, one event, no host: the error is the handler's.
	err := platformtest.Handle(t, db, reserve, platform.NewEvent{Type: "orders.placed", Target: "order-0", Data: OrderPlaced{}})
	fmt.Println("order 0:", platform.ReasonOf(err))

	// The whole path: a host, an event, and the row.
	platformtest.Host(t, dsn, reserve)
	platformtest.Emit(t, db, platform.NewEvent{Type: "orders.placed", Target: "order-17", Data: OrderPlaced{17}})
	platformtest.WaitFor(t, db, "select exists (select from reservation where order_id = 17)")
	fmt.Println("order 17: reserved")

	// Output:
	// order 0: stock.no_order
	// order 17: reserved
}
