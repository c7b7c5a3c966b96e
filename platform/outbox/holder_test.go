package outbox_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform/platformtest"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

// F04, N7: nobody's open transaction keeps others' events from their position, and
// mill.health shows who holds what vacuum would clean up.
func TestUnrelatedTransactionsFreezeNobody(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		hold func(t *testing.T, dsn string) (kind, who string) // "": there is nothing to show
	}{
		{"(a) an idle writer in another database", func(t *testing.T, _ string) (string, string) {
			other := session(t, platformtest.DSN(t))
			must(t, other, `insert into pgmill.audit (actor, action, subject) values ('test', 'hold', 'x')`)
			return "", "" // it keeps vacuum of this one's tables back no more than advance
		}},
		{"(a) an idle writer in this database", func(t *testing.T, dsn string) (string, string) {
			writer := session(t, dsn)
			must(t, writer, `insert into pgmill.audit (actor, action, subject) values ('test', 'hold', 'x')`)
			return "transaction", fmt.Sprintf("pid %d", writer.PgConn().PID())
		}},
		{"(b) a prepared transaction, whose session is gone", func(t *testing.T, dsn string) (string, string) {
			gid := fmt.Sprintf("holder-%d", prepared(t, dsn, `insert into pgmill.audit (actor, action, subject) values ('test', 'hold', 'x')`))
			return "prepared_transaction", "gid " + gid
		}},
		{"(c) sixty idle listeners with locks", func(t *testing.T, dsn string) (string, string) {
			for range 60 {
				conn, err := pgx.Connect(t.Context(), pgtest.Direct(t, dsn))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = conn.Close(context.Background()) })
				must(t, conn, `listen pgmill`)
				must(t, conn, `begin`)
				must(t, conn, `select pg_advisory_xact_lock_shared(4711)`)
			}
			return "", ""
		}},
		{"(d) a repeatable read reader", func(t *testing.T, dsn string) (string, string) {
			reader := session(t, dsn, "isolation level repeatable read read only")
			must(t, reader, `select count(*) from pgmill.event`)
			return "transaction", fmt.Sprintf("pid %d", reader.PgConn().PID())
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dsn := platformtest.DSN(t)
			pool := platformtest.Pool(t, dsn)
			emit(t, pool, "before")
			advance(t, pool)
			kind, who := tt.hold(t, dsn)
			emit(t, pool, "e1")
			if n := advance(t, pool); n != 1 { // at the first look, not within some second
				t.Errorf("advance = %d beside the holder, want 1", n)
			}
			wantPositions(t, pool, "beside the holder", "before", "e1")
			if kind == "" {
				return
			}
			// As if thirty seconds had passed, for this session.
			watch := session(t, dsn)
			must(t, watch, `commit; set pgmill.holder_age = '0'`)
			if n := ask[int](t, watch, `select count(*) from pgmill.holders() where kind = $1 and who = $2 and seconds >= 0`, kind, who); n != 1 {
				t.Errorf("pgmill.holders shows %s %s %d times, want once", kind, who, n)
			}
			var status, reasons string
			var holders, oldest int
			var holder *string
			if err := watch.QueryRow(t.Context(), `select status, reasons::text, (counts ->> 'holders')::int, (counts ->> 'oldest_seconds')::int, counts ->> 'holder'
				from mill.health where component = 'vacuum'`).Scan(&status, &reasons, &holders, &oldest, &holder); err != nil {
				t.Fatal(err)
			}
			if status != "degraded" || reasons != "{old_snapshot}" || holders < 1 || holder == nil {
				t.Errorf("mill.health of vacuum: %s %s %d holders, %v", status, reasons, holders, holder)
			}
			// What has just begun is nobody's trouble yet.
			if n := ask[int](t, pool, `select count(*) from pgmill.holders() where kind = $1 and who = $2`, kind, who); n != 0 {
				t.Errorf("%s %s is shown before thirty seconds have passed", kind, who)
			}
		})
	}
}

// F04: an event inside a held transaction waits for it, and only that one.
func TestPreparedEventWaitsForItsOwnTransactionOnly(t *testing.T) {
	t.Parallel()
	dsn := platformtest.DSN(t)
	pool := platformtest.Pool(t, dsn)
	for _, end := range []string{"commit", "rollback"} {
		gid := fmt.Sprintf("holder-%d", prepared(t, dsn, `set local pgmill.quiet = on; select mill.emit('order.placed', 'prepared')`))
		emit(t, pool, end)
		if n := advance(t, pool); n != 1 {
			t.Errorf("advance beside a prepared event = %d, want 1", n)
		}
		must(t, pool, end+` prepared '`+gid+`'`)
		advance(t, pool)
	}
	wantPositions(t, pool, "at the end", "commit", "prepared", "rollback")
}

// F44: the dead rows of old steps, which an old snapshot keeps, are not read again by
// each clean-up.
func TestOldSnapshotDoesNotSlowSteps(t *testing.T) {
	t.Parallel()
	dsn := platformtest.DSN(t)
	pool := platformtest.Pool(t, dsn)
	must(t, session(t, dsn, "isolation level repeatable read read only"), `select count(*) from pgmill.step`)
	must(t, pool, `insert into pgmill.step (k, base, last, after_id, cluster) select i, k.base, k.last, k.after_id, k.cluster from pgmill.step k, generate_series(-50000, -1) i`)
	must(t, pool, `delete from pgmill.step where k < 0`)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	most := 0
	for i := range 105 {
		emit(t, pool, name(i))
		if pages := pgtest.Fetched(t, conn.Conn(), `select pgmill.advance()`); i > 3 { // the first ones mark what is dead for those behind
			most = max(most, pages)
		}
	}
	if most > 100 {
		t.Errorf("an advance read %d pages beside 50000 dead steps", most)
	}
	if n := ask[int](t, pool, `select count(*) from pgmill.step`); n > 200 {
		t.Errorf("%d steps are kept, want about 100", n)
	}
}

// prepared runs a script in a transaction, prepares it under the name
// holder-<number> and ends the session. It is rolled back at the end of the test.
func prepared(t *testing.T, dsn, script string) (number uint32) {
	t.Helper()
	conn := session(t, dsn)
	number = conn.PgConn().PID()
	must(t, conn, script)
	must(t, conn, fmt.Sprintf(`prepare transaction 'holder-%d'`, number))
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), dsn)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close(context.Background())
		_, _ = conn.Exec(context.Background(), fmt.Sprintf(`rollback prepared 'holder-%d'`, number)) // it may have ended
	})
	return number
}
