package cleanup_test

import (
	"fmt"
	"testing"
	"testing/fstest"
	"time"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/host"
	"github.com/pgmill/pgmill/platform/platformtest"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

// withCarts is a module with 1,500 carts that are closed long ago.
func withCarts(name string) platform.Module {
	return platform.Module{Name: name, Migrations: fstest.MapFS{"0001_cart.sql": {Data: fmt.Appendf(nil, `-- +goose Up
create table %[1]s.cart (id int, closed_at timestamptz);
insert into %[1]s.cart select i, now() - interval '3 days' from generate_series(1, 1500) i;
`, name)}}}
}

// N39, N81, N82: a statement reaches the tables of its module, or what mill_cleaner was
// granted, a batch at a time, and nothing else, whoever the host is.
func TestAStatementReachesItsOwnTablesOnly(t *testing.T) {
	t.Parallel()
	const batch = `delete from %[1]s where ctid = any (array(select ctid from %[1]s where %[2]s < now() - $1::interval limit $2))`
	for _, tt := range []struct {
		name   string
		groups []string // of the host's role; none: a superuser
	}{
		{"a host that owns nothing", []string{"pgmill_runtime"}},
		{"a host that is a superuser", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			modules := []platform.Module{withCarts("stock"), withCarts("depot")}
			dsn := platformtest.DSN(t, modules...)
			pool := platformtest.Pool(t, dsn)
			must(t, pool, `create table basket as table stock.cart`)
			must(t, pool, `create table note as table stock.cart`)
			must(t, pool, `grant select, delete on basket to mill_cleaner`)
			must(t, pool, `insert into pgmill.job (id, topic, state, trace_id, updated_at) values ('waits', 'job.x', 'APPROVAL_REQUIRED', 't', now() - interval '9 days')`)
			must(t, pool, `insert into pgmill.job_waiting (job, topic, priority, demand, scope, seq, cost, attempt, due_at) values ('waits', 'job.x', 1, '', 'install', 1, 1, 1, 'infinity')`)
			reg := platform.NewRegistry()
			for _, m := range modules {
				if err := reg.Add(m); err != nil {
					t.Fatal(err)
				}
			}
			for _, c := range []struct{ name, delete string }{
				{"stock.own", fmt.Sprintf(batch, "stock.cart", "closed_at")},
				{"stock.others", fmt.Sprintf(batch, "depot.cart", "closed_at")},
				{"stock.cursors", fmt.Sprintf(batch, "pgmill.cursor", "now() - interval '9 days'")},
				{"depot.many", `delete from depot.cart where id <= 1001 and closed_at < now() - $1::interval and $2::int > 0`},
				{"loose.own", fmt.Sprintf(batch, "basket", "closed_at")},
				{"loose.not_granted", fmt.Sprintf(batch, "note", "closed_at")},
				{"loose.module", fmt.Sprintf(batch, "depot.cart", "closed_at")},
				{"loose.jobs", fmt.Sprintf(batch, "pgmill.job", "updated_at")},
				{"loose.events", fmt.Sprintf(batch, "pgmill.event", "now() - interval '9 days'")},
			} {
				if err := reg.Add(platform.Cleanup{Name: c.name, Cron: "@every 87600h", MaxAttempts: 1, Rule: platform.Rule{Keep: time.Hour, Delete: c.delete}}); err != nil {
					t.Fatal(err)
				}
			}
			as := dsn
			if tt.groups != nil {
				_, as = pgtest.Role(t, dsn, tt.groups...)
			}
			platformtest.HostWith(t, &host.Worker{Database: as, Registry: reg, Poll: 50 * time.Millisecond})
			for _, c := range platform.Of[platform.Cleanup](reg) {
				platformtest.Trigger(t, pool, c.Name)
			}
			platformtest.WaitFor(t, pool, `select bool_and(last_state in ('done', 'parked')) from mill.schedules`)
			if got, want := ask[string](t, pool, `select string_agg(concat_ws(' ', name, last_state, reason), ', ' order by name) from mill.schedules`),
				"depot.many parked batch_too_big, loose.events parked permission_denied, loose.jobs parked permission_denied, loose.module parked permission_denied, "+
					"loose.not_granted parked permission_denied, loose.own done, stock.cursors parked permission_denied, stock.others parked permission_denied, stock.own done"; got != want {
				t.Errorf("the clean-ups are\n%s, want\n%s", got, want)
			}
			if got, want := ask[string](t, pool, `select concat_ws(' ', (select count(*) from stock.cart), (select count(*) from basket), (select count(*) from depot.cart), (select count(*) from note), (select count(*) from pgmill.job))`), "0 0 1500 1500 1"; got != want {
				t.Errorf("rows of stock.cart, basket, depot.cart, note and job: %s, want %s", got, want)
			}
		})
	}
}
