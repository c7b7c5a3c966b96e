package platform_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
)

func TestAddSaysInOneLineWhatIsWrongWithACleanup(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(*platform.Cleanup)
		want   string // "": it is right
	}{
		{"the smallest one is right", func(*platform.Cleanup) {}, ""},
		{"one organization is right", func(c *platform.Cleanup) { c.Scope = platform.Org("acme") }, ""},
		{"each organization is right", func(c *platform.Cleanup) { c.Scope = platform.EachOrg }, ""},
		{"a statement is right", func(c *platform.Cleanup) {
			c.Rule.Class, c.Rule.Delete = "", "delete from cart where id in (select id from cart where closed_at < now() - $1::interval limit $2)"
		}, ""},
		{"no name", func(c *platform.Cleanup) { c.Name = "" }, `cleanup ""`},
		{"a bad cron line", func(c *platform.Cleanup) { c.Cron = "61 * * * *" }, `cleanup stock.receipts: cron "61 * * * *"`},
		{"a bad scope", func(c *platform.Cleanup) { c.Scope = "org:" }, `Scope "org:"`},
		{"nothing to delete", func(c *platform.Cleanup) { c.Rule.Class = "" }, "exactly one"},
		{"two things to delete", func(c *platform.Cleanup) { c.Rule.Delete = "delete $1 $2" }, "exactly one"},
		{"a class that is a statement", func(c *platform.Cleanup) { c.Rule.Class = "a; drop" }, "Rule.Class"},
		{"a statement without a limit", func(c *platform.Cleanup) {
			c.Rule.Class, c.Rule.Delete = "", "delete from cart where at < now() - $1::interval"
		}, "$2, how many"},
		{"a statement for each organization", func(c *platform.Cleanup) {
			c.Scope, c.Rule.Class, c.Rule.Delete = platform.EachOrg, "", "delete $1 $2"
		}, "not told an organization"},
		{"no time", func(c *platform.Cleanup) { c.Rule.Keep = 0 }, "say how long"},
		{"less time than its own least", func(c *platform.Cleanup) { c.Rule.AtLeast = 240 * time.Hour }, "AtLeast is 240h"},
		{"a batch that is too big (N82)", func(c *platform.Cleanup) { c.Rule.Batch = 1001 }, "Rule.Batch is 1001"},
		{"negative attempts", func(c *platform.Cleanup) { c.MaxAttempts = -1 }, "MaxAttempts is -1"},
	}
	for _, tt := range tests {
		c := platform.Cleanup{Name: "stock.receipts", Rule: platform.Rule{Class: "receipts", Keep: 24 * time.Hour}}
		tt.change(&c)
		err := platform.NewRegistry().Add(c)
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %v, want nil", tt.name, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n")):
			t.Errorf("%s: %v; want one line with %q", tt.name, err, tt.want)
		}
	}
}

func TestCleanupIsAScheduleOfItsTicks(t *testing.T) {
	t.Parallel()
	r := platform.NewRegistry()
	if err := r.Add(platform.Cleanup{Name: "stock.receipts", Rule: platform.Rule{Class: "receipts", Keep: 24 * time.Hour}}); err != nil {
		t.Fatal(err)
	}
	s := platform.Of[platform.Cleanup](r)[0].Schedule(func(context.Context, pgx.Tx, platform.Tick) error { return nil })
	if err := platform.NewRegistry().Add(s); err != nil {
		t.Errorf("Add of the schedule = %v", err)
	}
	sub := s.Subscription()
	if d := fmt.Sprintf("%v %v %v %v %v %v", s.Describe(), sub.Describe(), sub.Events, s.Overlap, s.Owners.Complete(), s.Cadence().Next(time.Unix(0, 0)).Unix()); d != "{stock.receipts cleanup stock [@every 10m]} {stock.receipts cleanup stock [@every 10m]} [schedule.stock.receipts] skip true 600" {
		t.Errorf("it is %s", d)
	}
}

func ExampleCleanup() {
	registry := platform.NewRegistry()
	err := registry.Add(platform.Cleanup{
		Name: "shop.carts",
		Cron: "@hourly",
		Rule: platform.Rule{
			Keep: 30 * 24 * time.Hour, // unless the profile's retention says otherwise
			Delete: `delete from shop.cart where id in (
				select id from shop.cart where closed_at < now() - $1::interval limit $2)`,
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range platform.Of[platform.Cleanup](registry) {
		fmt.Printf("%s of scope %s: %s kept %v, %d rows a transaction\n", c.Name, c.Scope, c.Key(), c.Rule.Keep, c.Rule.Batch)
	}
	// Output:
	// shop.carts of scope install: shop.carts kept 720h0m0s, 1000 rows a transaction
}
