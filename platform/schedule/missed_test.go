package schedule_test

import (
	"fmt"
	"testing"

	"github.com/pgmill/pgmill/platform"
)

// absent is a schedule after three hours without a host.
func (w *world) absent(line string, policy platform.Missed, most int) {
	w.Helper()
	s := w.schedule("test.one", cron(line, "Europe/Berlin"), func(s *platform.Schedule) { s.Missed, s.MaxMissed = policy, most })
	w.stopAllBut(nil)
	w.host(s)
	w.stopAllBut(nil)
	w.due("test.one", "3 hours")
	w.host(s)
	w.done("test.one")
}

func TestF62MissedFireTimesByPolicy(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		line   string
		policy platform.Missed
		most   int
		want   string // ticks, how long before now the first and last were due in minutes, missed by the first
	}{
		{"skip fires none", "@every 25m", platform.SkipMissed, 0, "0"},
		{"latest fires one, the newest", "@every 25m", platform.LatestMissed, 0, "1 5 5 7"},
		{"latest of a daily one", "@every 24h", platform.LatestMissed, 0, "1 180 180 0"},
		{"all fires all, oldest first", "@every 25m", platform.AllMissed, 0, "8 180 5 0"},
		{"all fires the newest of too many", "@every 25m", platform.AllMissed, 3, "3 55 5 5"},
		{"skip fires what is only late", "@every 90m", platform.SkipMissed, 0, "1 0 0 2"},
		{"latest does not fire a missed one before one that is only late", "@every 90m", platform.LatestMissed, 0, "1 0 0 2"},
		{"all fires both", "@every 90m", platform.AllMissed, 0, "3 180 0 0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.absent(tt.line, tt.policy, tt.most)
			w.want(tt.want, `select concat_ws(' ', count(*), round(extract(epoch from max(now() - e.at)) / 60), round(extract(epoch from min(now() - e.at)) / 60),
				(array_agg(e.missed order by e.n))[1]) from effect e join pgmill.schedule d using (name)`)
			w.want("t", "select coalesce(array_agg(at order by at) = array_agg(at order by n), true)::text::char from effect")
			if tt.want == "0" {
				w.want("missed missed", "select concat_ws(' ', last_state, reason) from mill.schedules")
			}
		})
	}
}

// A row may rest for years: what is reckoned is bounded.
func TestF62AYearOfSecondsIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.schedule("test.one", cron("@every 1s", ""), func(s *platform.Schedule) { s.Overlap = platform.SkipOverlap })
	w.host(s)
	w.exec("select mill.pause_subscription('test.one')")
	w.due("test.one", "1 year")
	w.wait("select next_at > now() - interval '5 seconds' from pgmill.schedule")
	w.exec("select mill.pause_schedule('test.one')")
	w.exec("select mill.resume_subscription('test.one')")
	w.wait("select dormant from pgmill.subscription")
	if n := ask[int](w, "select missed from effect order by missed desc limit 1"); n != 100 {
		t.Errorf("missed = %d, want 100: counted up to there", n)
	}
}

func TestPauseAndResumeAcrossFireTimesF62(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host(w.schedule("test.one", func(s *platform.Schedule) { s.Cron, s.Missed = "@every 1h", platform.AllMissed }))
	w.want("paused", "select mill.pause_schedule('test.one', 'stocktaking')")
	w.due("test.one", "30 days")
	w.want("paused|", "select concat_ws('|', reason, coalesce(next_at::text, '')) from mill.schedules")
	w.want("test.one schedule paused", "select concat_ws(' ', id, kind, reason) from mill.why_not_running")
	w.host(w.schedule("test.other"))
	w.due("test.other", "1 second")
	w.done("test.other")
	w.want("resumed", "select mill.resume_schedule('test.one', 'done')")
	w.wait("select next_at > now() from pgmill.schedule where name = 'test.one'")
	w.want("0 t", "select concat_ws(' ', (select count(*) from effect where name = 'test.one'), next_at < now() + interval '1 hour') from mill.schedules where name = 'test.one'")
	w.due("test.one", "1 second")
	w.exec("update pgmill.schedule set since = now() - interval '1 minute' where name = 'test.one'")
	w.done("test.one")
	w.want("1 0", "select concat_ws(' ', count(*), max(missed)) from effect where name = 'test.one'")
	me := "db:" + ask[string](w, "select session_user::text")
	w.want(fmt.Sprintf("%[1]s|schedule.pause|test.one|stocktaking %[1]s|schedule.resume|test.one|done", me), "select concat_ws('|', actor, action, subject, reason) from mill.audit where action like 'schedule%' order by at")
}

func TestTriggerIsATickOfItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host(w.schedule("test.one"))
	next := ask[string](w, "select next_at::text from pgmill.schedule")
	w.exec("select mill.pause_schedule('test.one')")
	for range 2 {
		w.exec("select mill.trigger_schedule('test.one', 'a person')")
	}
	w.wait("select count(*) = 2 from effect")
	w.wait("select dormant from pgmill.subscription")
	w.want("2 t 0 "+next, "select concat_ws(' ', count(*), bool_and(manual), max(e.missed), max(next_at)) from effect e join pgmill.schedule using (name)")
	w.want("done paused", "select concat_ws(' ', last_state, reason) from mill.schedules")
}

func TestOperatorsAreToldWhatIsUnknown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, f := range []string{"pause", "resume", "trigger"} {
		_, err := w.db.Exec(t.Context(), "select mill."+f+"_schedule('test.none')")
		if got := fmt.Sprint(err); got != "ERROR: no schedule 'test.none'; see mill.schedules (SQLSTATE MI404)" {
			t.Errorf("%s: %s", f, got)
		}
	}
}
