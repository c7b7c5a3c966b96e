package host_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/host"
	"github.com/pgmill/pgmill/platform/platformtest"
)

// N83, N84: the log names the worker, what failed, where and by which reason code;
// mill.health has counts, lag and reason codes. Neither has what the event carries.
func TestLogAndHealthNameWhoWhatAndWhy(t *testing.T) {
	t.Parallel()
	dsn := platformtest.DSN(t)
	pool := platformtest.Pool(t, dsn)
	log := &journal{}
	s := noting("a.fails", nil)
	s.Handle = func(context.Context, pgx.Tx, platform.Event) error {
		return platform.Fail("stock.insufficient", errors.New("postgres://ann:C4NARY@h/d"))
	}
	w := platformtest.HostWith(t, &host.Worker{Database: dsn, Log: log.logger()}, s)
	platformtest.Emit(t, pool, platform.NewEvent{Type: "test.one", Target: "t", Data: map[string]string{"note": "payload-C4NARY"}},
		platform.NewEvent{Type: "test.two", Target: "t"})
	platformtest.WaitFor(t, pool, `select exists (select from mill.subscriptions where state = 'held')`)
	for _, want := range []struct{ line, has string }{
		{"host works", "instance=" + w.ID()},
		{"event failed", "subscription=a.fails"},
		{"event failed", "shard=0"},
		{"event failed", "pos=1"},
		{"event failed", "reason=stock.insufficient"},
	} {
		lines := log.with(want.line)
		if len(lines) == 0 || !strings.Contains(lines[0], want.has) {
			t.Errorf("%q is told as %q; want %s in it", want.line, lines, want.has)
		}
	}
	if lines := log.with("C4NARY"); len(lines) > 0 {
		t.Errorf("the log has a canary: %q", lines)
	}
	const health = `select concat_ws(' ', status, reasons, counts ->> 'shards', counts ->> 'held', counts ->> 'lag_events', (counts ->> 'lag_seconds')::float8 > 0)
		from mill.health where component = 'subscriptions'`
	if got := ask[string](t, pool, health); got != "degraded {held} 1 1 2 t" {
		t.Errorf("mill.health of the subscriptions: %s", got)
	}
	if n := ask[int](t, pool, `select count(*) from mill.health h where h::text like '%C4NARY%' or checked_at is null or exists (select from unnest(reasons) r where r !~ '^[a-z0-9_.]{1,64}$')`); n > 0 {
		t.Errorf("%d rows of mill.health hold what is no reason code", n)
	}
	if id := ask[string](t, pool, `select id from mill.instances where live`); id != w.ID() {
		t.Errorf("mill.instances has %s, the host is %s", id, w.ID())
	}
}
