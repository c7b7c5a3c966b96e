package platformtest_test

import (
	"fmt"
	"time"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/host"
	"github.com/pgmill/pgmill/platform/platformtest"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

// carts is the clean-up under test.
var carts = platform.Cleanup{
	Name: "shop.carts",
	Cron: "@hourly",
	Rule: platform.Rule{
		Keep:   30 * 24 * time.Hour,
		Delete: `delete from cart where id in (select id from cart where closed_at < now() - $1::interval limit $2)`,
	},
}

// A test moves the rows' time, starts a host and triggers the clean-up; no clock has to
// go on.
func Example_cleanup() {
	t := platformtest.NewT() // in a test: the *testing.T
	defer t.End()

	dsn := platformtest.DSN(t)
	db := platformtest.Pool(t, dsn)
	pgtest.Exec(t, db, "create table cart (id int primary key, closed_at timestamptz)")
	pgtest.Exec(t, db, "grant select, delete on cart to mill_cleaner") // the table is no module's
	pgtest.Exec(t, db, "insert into cart values (1, now() - interval '31 days'), (2, now() - interval '29 days'), (3, null)")

	w := &host.Worker{Database: dsn, Registry: platform.NewRegistry()}
	if err := w.Registry.Add(carts); err != nil {
		t.Fatalf("register: %v", err)
	}
	platformtest.HostWith(t, w)
	platformtest.Trigger(t, db, carts.Name)
	platformtest.WaitFor(t, db, "select last_state = 'done' from mill.schedules where name = 'shop.carts'")
	fmt.Println("carts that are kept:", pgtest.Ask[string](t, db, "select string_agg(id::text, ', ' order by id) from cart"))

	// Output:
	// carts that are kept: 2, 3
}
