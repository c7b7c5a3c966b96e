package schedule_test

import (
	"testing"
	"time"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/host"
)

func TestADueTickIsEmittedAndHandledOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host(w.schedule("test.one"), w.schedule("test.two"))
	w.want("test.one schedule @every 87600h UTC test.two schedule @every 87600h UTC", "select concat_ws(' ', name, kind, listens[1], 'UTC') from mill.functions order by name")
	w.want("test.one|@every 87600h|UTC|t", "select concat_ws('|', name, cron, 'UTC', next_at > now() + interval '9 years', last_at, last_state, reason) from mill.schedules where name = 'test.one'")
	w.due("test.one", "1 second")
	w.done("test.one")
	w.want("schedule.test.one|test.one|install", "select concat_ws('|', type, target, scope) from mill.events")
	w.want("test.one 0 f t", "select concat_ws(' ', e.name, e.missed, e.manual, e.at = d.last_at) from effect e join pgmill.schedule d using (name)")
	w.want("done", "select concat_ws('|', last_state, reason) from mill.schedules where name = 'test.one'")
	w.want("running 1 0", "select concat_ws(' ', state, position, lag_events) from mill.subscriptions where name = 'test.one'")
}

// F61: each second's fire time is emitted once, and handled once, by three hosts.
func TestF61HostsThatRaceEmitEachFireTimeOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	every := w.schedule("test.second", cron("@every 1s", ""))
	for range 3 {
		w.host(every, w.schedule("test.rare"))
	}
	w.wait("select count(*) >= 4 from effect")
	w.exec("select mill.pause_schedule('test.second')")
	w.wait("select dormant from pgmill.subscription where name = 'test.second'")
	w.want("", "select at::text from effect group by at having count(*) > 1")
	w.want("t t", "select concat_ws(' ', count(*) = count(distinct at), max(at) - min(at) = (count(*) - 1) * interval '1 second') from effect")
	w.want("t", "select ((select count(*) from effect) = (select count(*) from pgmill.event where type = 'schedule.test.second'))::text::char")
}

// F61: a host that has read a due row is late if another has fired it meanwhile.
func TestF61TheLoserIsQuiet(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host(w.schedule("test.one"))
	plan := `[{"name": "test.one", "version": ` + ask[string](w, "select version::text from pgmill.schedule") + `, "next": 4102444800, "fires": [1800000000], "last": 1800000000, "missed": 0}]`
	w.want("1 1", "select concat_ws(' ', moved, ticks) from pgmill.fire_schedules($1)", plan)
	w.want("0 0", "select concat_ws(' ', moved, ticks) from pgmill.fire_schedules($1)", plan)
	w.exec("update pgmill.schedule set version = 0")
	w.want("1 0", "select concat_ws(' ', moved, ticks) from pgmill.fire_schedules($1)", `[{"name": "test.one", "version": 0, "next": 4102444800, "fires": [1800000000], "last": 1800000000, "missed": 0}]`)
	w.want("1", "select count(*)::text from pgmill.event")
}

// A host without the function leaves the tick to one that has it.
func TestF61OnlyAHostWithTheFunctionEmits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.schedule("test.one")
	w.hostWith(&host.Worker{Database: w.dsn, Poll: 50 * time.Millisecond, Profile: "first"}, s)
	stranger := w.host(w.schedule("test.other"))
	w.stopAllBut(stranger)
	w.due("test.one", "10 seconds")
	w.wait("select reason = 'no_live_host' from mill.schedules where name = 'test.one'")
	w.want("test.one|schedule|no_live_host", "select concat_ws('|', id, kind, reason) from mill.why_not_running")
	w.want("0", "select count(*)::text from pgmill.event")
	w.host(s)
	w.done("test.one")
	w.want("test.one 0", "select concat_ws(' ', name, missed) from effect")
}

// F61, F76: an old host fires by the row that a new one has changed; the change takes
// effect once.
func TestF61AChangedScheduleTakesEffectOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host(w.schedule("test.one", cron("0 3 * * *", "Europe/Berlin")))
	was := ask[time.Time](w, "select next_at from pgmill.schedule")
	for range 2 {
		w.host(w.schedule("test.one", cron("@every 48h", "")))
	}
	w.want("@every 48h |t", "select concat_ws('|', cron || ' ' || zone, next_at > now() + interval '47 hours') from mill.schedules")
	w.want("schedule.change test.one 0 3 * * * Europe/Berlin became @every 48h", "select concat_ws(' ', action, subject, reason) from mill.audit where action like 'schedule%'")
	if now := ask[time.Time](w, "select next_at from pgmill.schedule"); now.Equal(was) {
		t.Errorf("next_at is still %v", now)
	}
	w.due("test.one", "3 seconds")
	w.done("test.one")
	w.want("1 t", "select concat_ws(' ', count(*), max(next_at) - max(at) = interval '48 hours') from effect join pgmill.schedule using (name)")
}

// A line that changes to one that names the last fire time again does not fire it
// again, nor does a clock that was set back.
func TestF61AChangeDoesNotRepeatAFireTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host(w.schedule("test.one", cron("0 0 1 1 *", "")))
	w.exec("update pgmill.schedule set fired_to = '2100-06-01 02:00Z'")
	w.host(w.schedule("test.one", cron("0 2 1 6 *", "")))
	w.want("2101-06-01 02:00:00", "select (next_at at time zone 'UTC')::text from pgmill.schedule")
}

// The due time is the database's: the loop wakes for it, between two polls.
func TestF61TheLoopWakesWhenATickIsDue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.hostWith(&host.Worker{Database: w.dsn, Poll: 3 * time.Second}, w.schedule("test.second", cron("@every 1s", "")))
	w.wait("select count(*) >= 6 from effect")
	w.exec("select mill.pause_schedule('test.second')")
	w.wait("select dormant from pgmill.subscription where name = 'test.second'")
	late := ask[float64](w, "select percentile_cont(0.5) within group (order by extract(epoch from e.emitted_at - (e.data ->> 'at')::timestamptz)) from pgmill.event e where e.id > (select min(id) + 1 from pgmill.event)")
	if late > 0.5 {
		t.Errorf("ticks are emitted %.3f s late", late)
	}
}

func TestN40AScheduleWithoutOwnersDoesNotFire(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host(w.schedule("test.one", func(s *platform.Schedule) { s.Owners = platform.Owners{} }), w.schedule("test.two"))
	w.want("owner_matrix_incomplete|", "select concat_ws('|', reason, coalesce(next_at::text, '')) from mill.schedules where name = 'test.one'")
	w.want("test.one owner_matrix_incomplete", "select concat_ws(' ', id, reason) from mill.why_not_running")
	w.due("test.two", "1 second")
	w.done("test.two")
	w.host(w.schedule("test.one"))
	w.want("t", "select (next_at > now() and reason is null)::text::char from mill.schedules where name = 'test.one'")
}
