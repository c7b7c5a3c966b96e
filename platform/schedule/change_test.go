package schedule_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/pg"
)

// F63: a row that somebody broke by hand stops, the others go on, and a host that
// declares it mends it.
func TestF63ARowThatCannotBeReadStopsAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host(w.schedule("test.bad"), w.schedule("test.zone"), w.schedule("test.good"))
	w.exec("update pgmill.schedule set cron = '0 0 30 2 *' where name = 'test.bad'; update pgmill.schedule set zone = 'Nowhere/X' where name = 'test.zone'")
	w.due("test.bad", "2 seconds")
	w.due("test.zone", "2 seconds")
	w.wait("select count(*) = 2 from mill.schedules where reason = 'bad_schedule' and next_at is null")
	w.want("test.bad/bad_schedule test.zone/bad_schedule", "select concat_ws('/', id, reason) from mill.why_not_running order by id")
	w.due("test.good", "1 second")
	w.done("test.good")
	w.want("test.good", "select name from effect")
	w.host(w.schedule("test.bad"), w.schedule("test.zone"))
	w.want("2", "select count(*)::text from mill.schedules where reason is null and next_at > now() and cron = '@every 87600h' and name <> 'test.good'")
}

// F76: columns that come and go under running hosts cost no tick.
func TestF76ColumnsComeAndGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host(w.schedule("test.one"), w.schedule("test.two"))
	for i, ddl := range []string{"select 1", "alter table pgmill.schedule add newer text", "alter table pgmill.subscription add newer text", "alter table pgmill.schedule drop newer", "alter table pgmill.subscription drop newer"} {
		w.exec(ddl)
		for _, name := range []string{"test.one", "test.two"} {
			w.exec("update pgmill.schedule set next_at = date_trunc('second', now()) - $2::int * interval '1 second', version = version + 1, fired_to = null where name = $1", name, 20-i)
			w.done(name)
		}
	}
	w.want("10 0", "select concat_ws(' ', count(*), (select coalesce(sum(attempts), 0) from mill.subscriptions)) from effect")
}

// X10: the migration goes on top of subscriptions that are there, and again.
func TestX10MigrationOnAPopulatedDatabase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	old := platform.Subscription{Name: "test.sub", Events: []string{"t.*"}, Owners: platform.OwnedBy("test"),
		Handle: func(ctx context.Context, tx pgx.Tx, e platform.Event) error {
			_, err := tx.Exec(ctx, "insert into effect (name) values ($1)", e.Target)
			return err
		}}
	w.host(old)
	w.exec("select mill.emit('t.x', 'before')")
	w.wait("select count(*) = 1 from effect")
	w.stopAllBut(nil)
	w.exec(`drop table pgmill.reshard, pgmill.schedule, pgmill.module, pgmill.job, pgmill.job_waiting, pgmill.lane, pgmill.claim_floor, pgmill.topic, pgmill.topic_rate, pgmill.job_attempt, pgmill.job_lease, pgmill.job_cancel,
			pgmill.job_unique, pgmill.job_key, pgmill.dead_letter, pgmill.scope_limit, pgmill.document, pgmill.pool, pgmill.pool_topic, pgmill.job_progress, pgmill.blob, pgmill.topic_timeout cascade;
		drop sequence pgmill.job_seq; alter table pgmill.instance drop pools cascade, drop labels cascade; drop index pgmill.shard_retry; alter table pgmill.subscription drop dormant cascade;
		delete from pgmill.goose_db_version where version_id >= 2; delete from pgmill.build`)
	for range 2 {
		if _, err := pg.Migrate(t.Context(), w.dsn, nil); err != nil {
			t.Fatal(err)
		}
	}
	w.host(old, w.schedule("test.one"))
	w.exec("select mill.emit('t.x', 'after')")
	w.due("test.one", "1 second")
	w.done("test.one")
	w.wait("select count(*) = 3 from effect")
	w.want("after before test.one", "select name from effect order by name")
}

// A name that was a schedule and becomes a plain subscription gets its events, and no
// ticks; and the other way round.
func TestANameChangesItsKind(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host(w.schedule("test.one"))
	w.wait("select dormant from pgmill.subscription")
	w.stopAllBut(nil)
	w.host(platform.Subscription{Name: "test.one", Events: []string{"t.*"}, Owners: platform.OwnedBy("test"),
		Handle: func(ctx context.Context, tx pgx.Tx, e platform.Event) error {
			_, err := tx.Exec(ctx, "insert into effect (name) values ($1)", e.Target)
			return err
		}})
	w.due("test.one", "1 second")
	w.exec("select mill.emit('t.x', 'plain')")
	w.wait("select count(*) = 1 from effect")
	w.want("0", "select count(*)::text from mill.schedules")
	w.want("t.x", "select type from mill.events")
	w.stopAllBut(nil)
	w.host(w.schedule("test.one"))
	w.done("test.one")
	w.want("plain test.one", "select name from effect order by name")
}

// What is behind a dormant subscription's cursor is not read again, however long it
// slept: it wakes at the head.
func TestADormantSubscriptionWakesAtTheHead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host(w.schedule("test.one"))
	w.done("test.one")
	w.exec("select count(mill.emit('t.x', 'g' || g)) from generate_series(1, 300) g")
	w.wait("select position = 300 and lag_events = 0 from mill.subscriptions")
	w.want("0", "select max(pos)::text from pgmill.cursor")
	w.due("test.one", "1 second")
	w.done("test.one")
	w.want("300 301", "select string_agg(pos::text, ' ' order by n) from pgmill.cursor where pos > 0")
}

func TestRolesOperateAndEmitNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host(w.schedule("test.one"))
	as := func(role, sql string) error {
		return pgx.BeginFunc(t.Context(), w.db, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), "set local role "+role); err != nil {
				return err
			}
			_, err := tx.Exec(t.Context(), sql)
			return err
		})
	}
	for _, op := range []string{"pause", "resume", "trigger"} {
		if err := as("mill_operator", "select mill."+op+"_schedule('test.one')"); err != nil {
			t.Errorf("%s by an operator: %v", op, err)
		}
		for _, role := range []string{"mill_reader", "mill_emitter"} {
			if err := as(role, "select mill."+op+"_schedule('test.one')"); err == nil {
				t.Errorf("%s may %s", role, op)
			}
		}
	}
	if err := as("mill_reader", "select name, last_state, reason from mill.schedules; select id from mill.why_not_running"); err != nil {
		t.Errorf("a reader: %v", err)
	}
	if err := as("mill_emitter", "insert into mill.outbox (scope, type, target, data) values ('install', 'schedule.test.one', 't', '{}')"); err == nil {
		t.Error("an emitter forged a tick")
	}
	w.done("test.one")
	w.want("1", "select count(*)::text from effect")
}
