package platform_test

import (
	"context"
	"fmt"
	"testing/fstest"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
)

// orderPlaced is what orders.placed points to: ids, never content.
type orderPlaced struct {
	OrderID int64 `json:"order_id"`
}

// A subscription is data and one handler. What the handler writes through tx
// commits together with the cursor, or not at all. A program calls Register from
// an init function; tests and this example use a registry of their own.
func ExampleSubscription() {
	registry := platform.NewRegistry()
	err := registry.Add(platform.Subscription{
		Name:   "stock.reserve",
		Events: []string{"orders.placed", "orders.changed.*"},
		Owners: platform.OwnedBy("stock"),
		Handle: func(ctx context.Context, tx pgx.Tx, e platform.Event) error {
			placed, err := platform.Data[orderPlaced](e)
			if err != nil {
				return err
			}
			_, err = tx.Exec(ctx, `insert into stock.reservation (order_id) values ($1)`, placed.OrderID)
			return err
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range platform.Of[platform.Subscription](registry) {
		fmt.Printf("%s of module %s: %d shard, %d attempts, then %s\n", s.Name, s.Module, s.Shards, s.MaxAttempts, s.OnPoison)
		fmt.Println("orders.changed.address:", s.Matches("orders.changed.address"))
		fmt.Println("orders.paid:", s.Matches("orders.paid"))
	}
	// Output:
	// stock.reserve of module stock: 1 shard, 5 attempts, then hold
	// orders.changed.address: true
	// orders.paid: false
}

// Large ids keep their value: decode them into int64.
func ExampleData() {
	e := platform.Event{Type: "orders.placed", Data: []byte(`{"order_id": 9007199254740993}`)}
	placed, err := platform.Data[orderPlaced](e)
	fmt.Println(placed.OrderID, err)

	_, err = platform.Data[orderPlaced](platform.Event{Data: []byte(`{"order_id": "seventeen"}`)})
	fmt.Println(platform.ReasonOf(err))
	// Output:
	// 9007199254740993 <nil>
	// bad_data
}

// Emit is called in the author's own transaction, next to the change it tells of.
func ExampleEmit() {
	place := func(ctx context.Context, tx pgx.Tx, order int64) error {
		if _, err := tx.Exec(ctx, `insert into shop.orders (id) values ($1)`, order); err != nil {
			return err
		}
		_, err := platform.Emit(ctx, tx, platform.NewEvent{
			Type:           "orders.placed",
			Target:         fmt.Sprintf("order-%d", order),
			Data:           orderPlaced{order},
			IdempotencyKey: fmt.Sprintf("placed-%d", order),
		})
		return err
	}
	_ = place
}

// A module has tables of its own: `host migrate up` makes its schema from the
// migrations, which a program embeds, and its functions' handlers run as its role.
func ExampleModule() {
	registry := platform.NewRegistry()
	stock := platform.Module{Name: "stock", Migrations: fstest.MapFS{
		"migrations/0001_stock.sql": {Data: []byte(`-- +goose Up
create table stock.reservation (order_id bigint primary key);`)},
	}}
	if err := registry.Add(stock); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(registry.Role("stock"), registry.Modules()[0].Versions())
	// Output:
	// mill_module_stock [1]
}
