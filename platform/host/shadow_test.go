package host

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

// N45: a shadow replay counts how a handler would do, by reason, and leaves nothing.
func TestShadowReplay(t *testing.T) {
	t.Parallel()
	dsn := migratedDatabase(t)
	conn := connected(t, dsn)
	pgtest.Exec(t, conn, `create table public.effect (target text, unique (target) deferrable initially deferred)`)
	pgtest.Exec(t, conn, `insert into public.effect values ('e3')`)
	pgtest.Exec(t, conn, `select mill.emit('shop.sold', 'e' || n) from generate_series(1, 7) n`)
	pgtest.Exec(t, conn, `select mill.emit('other.thing', 'e1')`)
	pgtest.Exec(t, conn, `select pgmill.advance()`)
	reg := platform.NewRegistry()
	if err := reg.Add(platform.Subscription{Name: "shop.count", Events: []string{"shop.*"}, Owners: platform.OwnedBy("shop"), Replayable: true, Timeout: time.Second,
		Handle: func(ctx context.Context, tx pgx.Tx, e platform.Event) error {
			if _, err := tx.Exec(ctx, `insert into public.effect values ($1)`, e.Target); err != nil {
				return err
			}
			if _, err := platform.Emit(ctx, tx, platform.NewEvent{Type: "shop.counted", Target: e.Target}); err != nil {
				return err
			}
			switch e.Target {
			case "e2":
				return platform.Fail("shop.closed", nil)
			case "e4":
				panic("C4NARY")
			case "e5":
				_, err := tx.Exec(ctx, `select pg_sleep(60)`)
				return err
			}
			return nil
		}}); err != nil {
		t.Fatal(err)
	}
	sh := shell{t: t, reg: reg, environ: []string{"DATABASE_URL=" + dsn, "PGMILL_PROFILE=single-db-pilot"}}
	for _, tt := range []struct {
		args, want string
		code       int
	}{
		{"", "commit_failed 1 3, ok 3 1, panic 1 4, shop.closed 1 2, timeout 1 5", exitFailed},
		{"--from 6 --to 7", "ok 2 6", exitOK},
		{"--from 7 --to 99", "ok 1 7", exitOK},
		{"--from 9", "", exitOK},
	} {
		code, stdout, stderr := sh.run(append([]string{"subscription", "shadow", "shop.count", "-o", "json"}, strings.Fields(tt.args)...)...)
		var rows []shadowRow
		if err := json.Unmarshal([]byte(stdout), &rows); err != nil {
			t.Fatalf("%q: exit code %d, %v: %s%s", tt.args, code, err, stdout, stderr)
		}
		var got []string
		for _, r := range rows {
			got = append(got, fmt.Sprint(r.Outcome, " ", r.Events, " ", r.First))
		}
		if s := strings.Join(got, ", "); s != tt.want || code != tt.code {
			t.Errorf("shadow %s counts %q, exit code %d; want %q, %d: %s", tt.args, s, code, tt.want, tt.code, stderr)
		}
	}
	if got := pgtest.Ask[string](t, conn, `select (select count(*) from public.effect) || ' ' || (select count(*) from pgmill.event) || ' ' || (select count(*) from pgmill.cursor)`); got != "1 8 0" {
		t.Errorf("effects, events and cursors are %s; want what there was: 1 8 0", got)
	}
	if code, _, stderr := sh.run("subscription", "shadow", "shop.cuont"); code != exitUsage || !strings.Contains(stderr, "shop.count") {
		t.Errorf("an unknown name: exit code %d: %s", code, stderr)
	}
}
