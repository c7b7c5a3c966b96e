package cleanup_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/platformtest"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

// emit makes n events with their positions.
func emit(t testing.TB, pool *pgxpool.Pool, n int) {
	t.Helper()
	must(t, pool, `select mill.emit('order.placed', 'o-' || i, 'k-' || i % 3) from generate_series(1, $1) i`, n)
	must(t, pool, `select pgmill.advance()`)
}

// subscribe declares a subscription as a host does, without running it: its cursor is
// at 0.
func subscribe(t testing.TB, pool *pgxpool.Pool, name string) {
	t.Helper()
	must(t, pool, `insert into pgmill.function (name, kind, module, listens) values ($1, 'subscription', 't', '{order.*}')`, name)
	must(t, pool, `insert into pgmill.subscription (name, likes, order_by, shards, batch, max_attempts, on_poison, replayable, timeout)
		values ($1, '{order.%}', 'key', 1, 10, 3, 'park', true, '30 s')`, name)
	must(t, pool, `insert into pgmill.shard (subscription, shard) values ($1, 0)`, name)
	moveTo(t, pool, name, 0)
}

func moveTo(t testing.TB, pool *pgxpool.Pool, name string, pos int64) {
	t.Helper()
	must(t, pool, `insert into pgmill.cursor (subscription, shard, n, pos)
		select $1, 0, coalesce(max(n), 0) + 1, $2 from pgmill.cursor where subscription = $1`, name, pos)
}

// archive is what host events archive --before pos does; "" or the SQLSTATE that it was
// refused with.
func archive(t testing.TB, db pgtest.DB, before int64, take int) string {
	t.Helper()
	if _, err := db.Exec(t.Context(), `select pgmill.begin_archive($1, 'test')`, before-1); err != nil {
		return code(err)
	}
	for at := int64(-1); at < before-1; {
		was := at
		if err := db.QueryRow(t.Context(), `select pgmill.archive_batch($1, $2)`, before-1, take).Scan(&at); err != nil {
			return code(err)
		}
		if at == was {
			t.Fatalf("the archive does not get on from %d", at)
		}
	}
	must(t, db, `select pgmill.drop_archived()`)
	return ""
}

// kept are the positions whose events are there, and the archive's.
func kept(t testing.TB, db pgtest.DB) string {
	t.Helper()
	return ask[string](t, db, `select concat_ws(' ', pgmill.archived(), (select count(*) from pgmill.event), (select min(l.pos) from pgmill.log l join pgmill.event e on e.id = l.event_id), (select count(*) from pgmill.log))`)
}

// F13: what any reader needs stays, and the plan names it.
func TestArchiveRefusesWhatAReaderNeeds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, need string // what makes position 11 and later needed
		want       string
	}{
		{"a cursor", `insert into pgmill.cursor (subscription, shard, n, pos) values ('t.one', 0, 100, 10)`, "the cursor of t.one/0, from position 11"},
		{"a paused subscription's", `update pgmill.subscription set paused_at = now(); insert into pgmill.cursor (subscription, shard, n, pos) values ('t.one', 0, 100, 10)`, "the cursor of t.one/0, which is paused, from position 11"},
		{"a replay", `select mill.move_subscription('t.one', '11')`, "the cursor of t.one/0, from position 11"},
		{"a parked key", `insert into pgmill.parked_key (subscription, shard, key, key_hash, from_pos) values ('t.one', 0, 'k', 1, 11)`, "a parked key of t.one/0, from position 11"},
		{"the replay of a parked key", `insert into pgmill.parked_key (subscription, shard, key, key_hash, from_pos, replay_pos) values ('t.one', 0, 'k', 1, 12, 10)`, "the replay of a parked key of t.one/0, from position 11"},
		{"a parked event", `select pgmill.park_event('t.one', 0, 11, 'k', 3, 'handler_error')`, "a parked event of t.one/0, from position 11"},
		{"a suspect event", `update pgmill.shard set noted_pos = 11`, "the event noted by t.one/0, from position 11"},
		{"a failing event", `update pgmill.shard set failing_pos = 11, attempts = 1 where subscription = 't.one'`, "the failing event of t.one/0, from position 11"},
		{"a reshard", `insert into pgmill.reshard (subscription, shards, stop_at) values ('t.one', 2, 10)`, "the reshard of t.one, from position 11"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := platformtest.DB(t)
			emit(t, pool, 30)
			subscribe(t, pool, "t.one")
			moveTo(t, pool, "t.one", 30)
			for i := range 3 {
				subscribe(t, pool, "t.other"+string(rune('a'+i)))
				moveTo(t, pool, "t.other"+string(rune('a'+i)), 30)
			}
			for _, q := range strings.Split(tt.need, "; ") {
				must(t, pool, q)
			}
			if got := ask[string](t, pool, `select array_to_string(needed_by, '; ') from pgmill.archive_plan('13')`); !strings.Contains(got, tt.want) {
				t.Errorf("the plan says %q, want %q", got, tt.want)
			}
			if got := ask[string](t, pool, `select rows || ' ' || blocked_by from mill.retention_preview where class = 'events'`); got != "10 "+strings.Split(tt.want, ", from")[0] {
				t.Errorf("the preview says %q", got)
			}
			if got := archive(t, pool, 12, 5); got != "MI409" {
				t.Errorf("archive = %q, want MI409", got)
			}
			if got := kept(t, pool); got != "0 30 1 30" {
				t.Errorf("kept %s after a refusal", got)
			}
			if got := archive(t, pool, 11, 3); got != "" {
				t.Errorf("archive of what nobody needs = %q", got)
			}
			if got := kept(t, pool); got != "10 20 11 20" {
				t.Errorf("kept %s, want 10 20 11 20", got)
			}
			must(t, pool, `delete from pgmill.parked_event; delete from pgmill.parked_key; update pgmill.shard set noted_pos = null, failing_pos = null`, pgx.QueryExecModeSimpleProtocol) // made up
		})
	}
}

// F13: one paused subscription that needs what is to go is found among five thousand that
// do not, the last that any list comes to; and gets all of it when it is resumed.
func TestArchiveSeesOneReaderAmongThousands(t *testing.T) {
	t.Parallel()
	dsn := platformtest.DSN(t)
	pool := platformtest.Pool(t, dsn)
	must(t, pool, `create table seen (pos bigint)`)
	emit(t, pool, 1000)
	must(t, pool, `insert into pgmill.function (name, kind, module, listens) select 't.other' || i, 'subscription', 't', '{order.*}' from generate_series(1, 5000) i`)
	must(t, pool, `insert into pgmill.subscription (name, likes, order_by, shards, batch, max_attempts, on_poison, replayable, timeout, paused_at)
		select f.name, '{order.%}', 'key', 1, 10, 3, 'park', true, '30 s', now() from pgmill.function f`)
	must(t, pool, `insert into pgmill.shard (subscription, shard) select f.name, 0 from pgmill.function f`)
	must(t, pool, `insert into pgmill.cursor (subscription, shard, n, pos) select f.name, 0, 1, 900 from pgmill.function f`)
	subscribe(t, pool, "t.zz")
	moveTo(t, pool, "t.zz", 10)
	must(t, pool, `select mill.pause_subscription('t.zz')`)

	const needed = "the cursor of t.zz/0, which is paused"
	if got := ask[string](t, pool, `select needed || ': ' || array_to_string(needed_by, '; ') from pgmill.archive_plan('900')`); got != "1: "+needed+", from position 11" {
		t.Errorf("the plan says %q", got)
	}
	if got := ask[string](t, pool, `select rows || ' ' || blocked_by from mill.retention_preview where class = 'events'`); got != "10 "+needed {
		t.Errorf("the preview says %q", got)
	}
	for _, before := range []int64{12, 900} {
		if got := archive(t, pool, before, 100); got != "MI409" {
			t.Errorf("archive before %d = %q, want MI409", before, got)
		}
	}
	if got := archive(t, pool, 11, 100); got != "" || kept(t, pool) != "10 990 11 990" {
		t.Errorf("archive of what nobody needs = %q, kept %s", got, kept(t, pool))
	}
	platformtest.Host(t, dsn, platform.Subscription{Name: "t.zz", Events: []string{"order.*"}, Owners: platform.OwnedBy("t"), Replayable: true,
		Handle: func(ctx context.Context, tx pgx.Tx, e platform.Event) error {
			_, err := tx.Exec(ctx, `insert into seen values ($1)`, e.Pos)
			return err
		}})
	must(t, pool, `select mill.resume_subscription('t.zz')`)
	platformtest.WaitFor(t, pool, `select position = 1000 from mill.subscriptions where name = 't.zz'`)
	if got := ask[string](t, pool, `select concat_ws(' ', min(pos), max(pos), count(*), count(distinct pos)) from seen`); got != "11 1000 990 990" {
		t.Errorf("it got %s, want each from 11 to 1000", got)
	}
}

// F13: a cursor that an old backup sets before what is kept is expired, never moved on
// by itself, and goes on where an operator says.
func TestCursorBeforeTheArchiveIsExpired(t *testing.T) {
	t.Parallel()
	dsn := platformtest.DSN(t)
	pool := platformtest.Pool(t, dsn)
	must(t, pool, `create table seen (pos bigint)`)
	emit(t, pool, 30)
	sub := platform.Subscription{Name: "t.one", Events: []string{"order.*"}, Owners: platform.OwnedBy("t"), From: platform.FromZero, Replayable: true,
		Handle: func(ctx context.Context, tx pgx.Tx, e platform.Event) error {
			_, err := tx.Exec(ctx, `insert into seen values ($1)`, e.Pos)
			return err
		}}
	w := platformtest.Host(t, dsn, sub)
	platformtest.WaitFor(t, pool, `select count(*) = 30 from seen`)
	platformtest.Stop(t, w)
	if got := archive(t, pool, 21, 100); got != "" {
		t.Fatalf("archive = %q", got)
	}
	must(t, pool, `truncate seen`)
	moveTo(t, pool, "t.one", 5)
	const state = `select state || ' ' || position from mill.subscriptions where name = 't.one'`
	for _, to := range []string{"10", "20"} {
		if _, err := pool.Exec(t.Context(), `select mill.move_subscription('t.one', $1)`, to); code(err) != "MI409" {
			t.Errorf("move to %s, which is archived: %v, want MI409", to, err)
		}
	}
	sub.Name, sub.From = "t.two", platform.FromZero
	other := sub
	sub.Name = "t.one"
	platformtest.Host(t, dsn, sub, other)
	emit(t, pool, 1)
	platformtest.WaitFor(t, pool, `select lag_events = 0 from mill.subscriptions where name = 't.two'`) // a look and more
	if got := ask[string](t, pool, state); got != "expired 5" {
		t.Errorf("t.one is %s, want expired 5", got)
	}
	// A late one from zero starts at the first that is kept, and says so.
	if got := ask[string](t, pool, `select min(pos) || ' ' || count(*) from seen`); got != "21 11" {
		t.Errorf("t.two has seen %s, want 21 11", got)
	}
	if got := ask[string](t, pool, `select subject || ' ' || reason from mill.audit where action = 'subscription.start'`); got != "t.two@20 archived" {
		t.Errorf("audit: %s", got)
	}
	must(t, pool, `select mill.move_subscription('t.one', 'zero')`)
	platformtest.WaitFor(t, pool, `select count(*) = 22 from seen`)
	if got := ask[string](t, pool, state); got != "running 31" {
		t.Errorf("t.one is %s, want running 31", got)
	}
}

// The archive is the owner's (N81): hosts' role cannot, and neither can an operator.
func TestArchiveIsTheOwners(t *testing.T) {
	t.Parallel()
	dsn := platformtest.DSN(t)
	pool := platformtest.Pool(t, dsn)
	emit(t, pool, 5)
	for _, group := range []string{"pgmill_runtime", "mill_operator", "pgmill_cleanup"} {
		_, as := pgtest.Role(t, dsn, group)
		other := platformtest.Pool(t, as)
		for _, q := range []string{`select pgmill.begin_archive(3, null)`, `select pgmill.archive_batch(3, 10)`, `update pgmill.archive set upto = 3`} {
			if _, err := other.Exec(t.Context(), q); code(err) != "42501" {
				t.Errorf("%s by %s = %v, want 42501", q, group, err)
			}
		}
	}
	if got := kept(t, pool); got != "0 5 1 5" {
		t.Errorf("kept %s", got)
	}
	if got := archive(t, pool, 3, 10); got != "" || kept(t, pool) != "2 3 3 3" {
		t.Errorf("archive = %q, kept %s", got, kept(t, pool))
	}
	if got := ask[string](t, pool, `select action || ' ' || subject || ' ' || reason from mill.audit`); got != "events.archive positions 1 to 2 test" {
		t.Errorf("audit: %s", got)
	}
}

// Whole partitions go without their rows being deleted one by one; one that somebody
// reads is left, and nobody waits behind its drop for long (F77).
func TestArchiveDropsPartitions(t *testing.T) {
	t.Parallel()
	const width = 5_000_000
	dsn := platformtest.DSN(t)
	pool := platformtest.Pool(t, dsn)
	must(t, pool, `update pgmill.step set last = $1`, width-4)
	must(t, pool, `update pgmill.archive set upto = $1`, width-4)
	emit(t, pool, 10) // 3 at the end of a partition, 7 in the next
	if got := archive(t, pool, width-2, 100); got != "" {
		t.Fatalf("archive = %q", got)
	}
	if got := ask[int](t, pool, `select count(*) from pgmill.log`); got != 9 {
		t.Errorf("%d log rows, want 9: the partition stays", got)
	}
	reader := pgtest.Session(t, dsn)
	must(t, reader, `select count(*) from pgmill.log_0`)
	if got := archive(t, pool, width+3, 100); got != "" {
		t.Fatalf("archive = %q", got)
	}
	if got := kept(t, pool); got != "5000002 4 5000003 6" { // the two in the partition are still in its rows
		t.Errorf("kept %s", got)
	}
	if got := ask[string](t, pool, `select dropped || ' ' || remaining from pgmill.drop_archived()`); got != "0 1" {
		t.Errorf("drop behind a reader = %s, want 0 1", got)
	}
	must(t, reader, "commit")
	if got := ask[string](t, pool, `select dropped || ' ' || remaining from pgmill.drop_archived()`); got != "1 0" {
		t.Errorf("drop after the reader = %s, want 1 0", got)
	}
	emit(t, pool, 1)
	if got := kept(t, pool); got != "5000002 5 5000003 5" {
		t.Errorf("kept %s", got)
	}
	if n := ask[int](t, pool, `select pgmill.make_partitions()`); n != 1 { // three ahead of the next one now
		t.Errorf("make_partitions = %d, want 1", n)
	}
}

// After a restore into another cluster, archived events do not come back, and none
// that was kept is missed.
func TestArchivedEventsAreNotPositionedAgain(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	emit(t, pool, 10)
	must(t, pool, `select mill.emit('order.placed', 'late')`) // no position yet
	if got := archive(t, pool, 8, 2); got != "" {
		t.Fatalf("archive = %q", got)
	}
	must(t, pool, `update pgmill.step set cluster = 1 where k = (select max(k) from pgmill.step)`)
	if n := ask[int](t, pool, `select pgmill.advance()`); n != 1 {
		t.Errorf("advance in the other cluster = %d, want the one event without a position", n)
	}
	if got := kept(t, pool); got != "7 4 8 4" {
		t.Errorf("kept %s, want 7 4 8 4", got)
	}
	must(t, pool, `update pgmill.event set emitted_at = now() - interval '1 minute'`)
	if got := ask[string](t, pool, `select status from mill.health where component = 'log'`); got != "ok" {
		t.Errorf("the auditor says %s", got)
	}
}

// A schedule whose last tick is archived is done, and goes on, also one that skips what
// overlaps; the cursor of one that sleeps keeps nothing.
func TestArchiveAndSchedules(t *testing.T) {
	t.Parallel()
	dsn := platformtest.DSN(t)
	pool := platformtest.Pool(t, dsn)
	must(t, pool, `create table ticked (at timestamptz)`)
	reg := platform.NewRegistry()
	if err := reg.Add(platform.Schedule{Name: "t.tick", Cron: "@every 87600h", Owners: platform.OwnedBy("t"), Overlap: platform.SkipOverlap,
		Handle: func(ctx context.Context, tx pgx.Tx, k platform.Tick) error {
			_, err := tx.Exec(ctx, `insert into ticked values ($1)`, k.At)
			return err
		}}); err != nil {
		t.Fatal(err)
	}
	hostOf(t, dsn, reg)
	fire := func() {
		must(t, pool, `update pgmill.schedule set next_at = date_trunc('second', now()), version = version + 1`)
	}
	fire()
	platformtest.WaitFor(t, pool, `select count(*) = 1 and bool_and(dormant) from ticked, pgmill.subscription`)
	emit(t, pool, 20)
	head := ask[int64](t, pool, `select pgmill.head()`)
	if got := archive(t, pool, head+1, 100); got != "" {
		t.Fatalf("archive to the head = %q", got)
	}
	must(t, pool, `select mill.pause_subscription('t.tick'), mill.resume_subscription('t.tick')`) // awake, and not expired
	if got := ask[string](t, pool, `select s.state || ' ' || d.last_state from mill.subscriptions s join mill.schedules d using (name)`); got != "running done" {
		t.Errorf("it is %s, want running done", got)
	}
	must(t, pool, `update pgmill.schedule set fired_to = null`) // within the same second
	fire()
	platformtest.WaitFor(t, pool, `select count(*) = 2 from ticked`)
}

// A tick that is being emitted while the archive begins is waited for: its schedule's
// cursor is at a head of before.
func TestArchiveWaitsForWhoIsWoken(t *testing.T) {
	t.Parallel()
	dsn := platformtest.DSN(t)
	pool := platformtest.Pool(t, dsn)
	emit(t, pool, 5)
	subscribe(t, pool, "t.sleeps")
	must(t, pool, `update pgmill.subscription set dormant = true`)
	waker := pgtest.Session(t, dsn)
	must(t, waker, `select pgmill.wake('t.sleeps')`)
	emit(t, pool, 5)
	if got := archive(t, pool, 11, 100); got != "55P03" {
		t.Errorf("archive while it is woken = %q, want 55P03", got)
	}
	must(t, waker, "commit")
	if got := archive(t, pool, 11, 100); got != "MI409" {
		t.Errorf("archive after it woke = %q, want MI409", got)
	}
	if got := archive(t, pool, 6, 100); got != "" {
		t.Errorf("archive up to where it woke = %q", got)
	}
	if got := ask[string](t, pool, `select state || ' ' || position from mill.subscriptions`); got != "running 5" {
		t.Errorf("it is %s, want running 5", got)
	}
}

// A replay that begins while the archive is at work is either seen by it, or refused.
func TestReplayAndArchiveSeeEachOther(t *testing.T) {
	t.Parallel()
	dsn := platformtest.DSN(t)
	pool := platformtest.Pool(t, dsn)
	emit(t, pool, 20)
	subscribe(t, pool, "t.one")
	moveTo(t, pool, "t.one", 20)
	replay := pgtest.Session(t, dsn)
	must(t, replay, `select mill.move_subscription('t.one', '6')`)
	if got := archive(t, pool, 11, 100); got != "55P03" {
		t.Errorf("archive while a replay begins = %q, want 55P03", got)
	}
	must(t, replay, "commit")
	if got := archive(t, pool, 11, 100); got != "MI409" {
		t.Errorf("archive after the replay has begun = %q, want MI409", got)
	}
	// Between two batches of one archive.
	moveTo(t, pool, "t.one", 20)
	must(t, pool, `select pgmill.begin_archive(10, null), pgmill.archive_batch(10, 4)`)
	must(t, pool, `select mill.move_subscription('t.one', '8')`)
	if _, err := pool.Exec(t.Context(), `select pgmill.archive_batch(10, 4)`); code(err) != "MI409" {
		t.Errorf("the next batch = %v, want MI409", err)
	}
	if got := kept(t, pool); got != "4 16 5 16" {
		t.Errorf("kept %s", got)
	}
	if got := ask[string](t, pool, `select state || ' ' || position from mill.subscriptions`); got != "running 7" {
		t.Errorf("it is %s, want running 7", got)
	}
}

// Positions, times and ages.
func TestArchiveTarget(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	emit(t, pool, 10)
	must(t, pool, `update pgmill.log set at = now() - (11 - pos) * interval '1 day'`)
	for _, tt := range []struct {
		before string
		want   int64
	}{{"4", 3}, {"1", 0}, {"0", -1}, {"999", 10}, {"7d12h", 3}, {"36h", 9}, {"1s", 10}, {time.Now().Add(-60 * time.Hour).Format(time.RFC3339), 8}} {
		if got := ask[int64](t, pool, `select pgmill.archive_target($1)`, tt.before); got != tt.want {
			t.Errorf("archive_target(%s) = %d, want %d", tt.before, got, tt.want)
		}
	}
	for _, before := range []string{"", "soon", "7x", "-3", "99999999999999999999d"} {
		if _, err := pool.Exec(t.Context(), `select pgmill.archive_target($1)`, before); code(err) != "MI001" {
			t.Errorf("archive_target(%q) = %v, want MI001", before, err)
		}
	}
}
