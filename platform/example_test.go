package platform_test

import (
	"context"
	"fmt"
	"testing/fstest"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/platformtest"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
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

// Emit is called in the author's own transaction, next to the change it tells of. With an
// idempotency key a repeated one is the same event.
func ExampleEmit() {
	t := platformtest.NewT() // in a test: the *testing.T
	defer t.End()
	db := platformtest.DB(t)
	pgtest.Exec(t, db, `create table orders (id bigint, note text)`)

	place := func(ctx context.Context, tx pgx.Tx, order int64) error {
		if _, err := tx.Exec(ctx, `insert into orders (id) values ($1)`, order); err != nil {
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
	for range 2 {
		if err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error { return place(t.Context(), tx, 17) }); err != nil {
			t.Fatalf("place: %v", err)
		}
	}
	fmt.Println(pgtest.Ask[string](t, db, `select string_agg(type || ' ' || target, ', ') from mill.events`))
	// Output:
	// orders.placed order-17
}

// thumbnail and drawn are what a step takes and gives; the schemas come from the types.
type thumbnail struct {
	OrderID int64 `json:"order_id"`
}

type drawn struct {
	Width int `json:"width"`
}

// A step does the jobs of one topic. This one leaves the process, so it has Run; one that
// writes to Postgres has Handle, with the transaction that ends the job.
func ExampleStep() {
	registry := platform.NewRegistry()
	err := registry.Add(platform.Step[thumbnail, drawn]{
		Topic: "job.shop.thumbnail",
		Run: func(ctx context.Context, a *platform.Attempt, in thumbnail) (drawn, error) {
			_ = a.Progress(ctx, 50, "drawing") // a.Key tells repeats apart outside
			if in.OrderID == 0 {
				return drawn{}, platform.Fail("shop.no_order", nil) // final: a dead letter
			}
			return drawn{Width: 160}, nil
		},
		RetryOn: []platform.Reason{platform.ReasonTimeout},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	s := platform.Of[platform.StepSpec](registry)[0]
	fmt.Printf("%s of module %s: %d attempts of %v\n", s.Topic, s.Module, s.MaxAttempts, s.Timeout)
	// What a host does with an attempt's input:
	for _, input := range []string{`{"order_id": 7}`, `{"order_id": 0}`, `{"order_id": "seven"}`} {
		out, err := s.Run(context.Background(), platform.NewAttempt(platform.Attempt{Number: 1}, nil), []byte(input))
		fmt.Printf("%s -> %s%s\n", input, out, platform.ReasonOf(err))
	}
	// Output:
	// job.shop.thumbnail of module shop: 3 attempts of 10m0s
	// {"order_id": 7} -> {"width":160}
	// {"order_id": 0} -> shop.no_order
	// {"order_id": "seven"} -> schema_validation_failed
}

// Enqueue submits jobs in the author's own transaction. The answer says what became of each;
// the last one finds its key taken by the first. Whoever does the topic, a Step or an outside
// worker, may come later.
func ExampleEnqueue() {
	t := platformtest.NewT() // in a test: the *testing.T
	defer t.End()
	db := platformtest.DB(t)

	job := platform.NewJob{Topic: "job.shop.thumbnail", Input: thumbnail{7}, UniqueKey: "order-7"}
	err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
		all, err := platform.Enqueue(t.Context(), tx, job, platform.NewJob{Topic: "job.shop.thumbnail", Input: thumbnail{8}}, job)
		for _, s := range all {
			fmt.Println(s.Outcome, s.Job == all[0].Job)
		}
		return err
	})
	if err != nil {
		t.Fatalf("enqueue: %v", err)
	}
	fmt.Println(pgtest.Ask[int](t, db, `select count(*)::int from mill.jobs where state = 'PENDING'`), "jobs wait")
	// Output:
	// accepted true
	// accepted false
	// rejected true
	// 2 jobs wait
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
