package faults_test

import (
	"strings"
	"testing"
	"time"
)

// everySecond checks that a schedule of each second has one event and one effect for
// each second from its first to its last, after it has come to rest.
func (b *bed) everySecond(name string) {
	b.Helper()
	b.exec("select mill.pause_schedule($1)", name)
	b.wait("select dormant from pgmill.subscription where name = $1", name)
	b.exactlyOnce(name, "schedule."+name)
	if got := b.list(`
		select format('%s ticks of %s seconds from %s to %s', count(*), extract(epoch from max(at) - min(at)) + 1, min(at), max(at))
		from (select (data ->> 'at')::timestamptz as at from pgmill.event where type = 'schedule.' || $1) e
		having count(*) <> extract(epoch from max(at) - min(at)) + 1 or count(*) <> count(distinct at)`, name); got != "" {
		b.Errorf("%s: %s", name, got)
	}
}

// F61: killed between the emit of a tick and its settle, at each step.
func TestF61KilledBetweenEmitAndSettle(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"in-handler", "before-settle", "after-settle"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			s := []timed{{Name: "test.second", Cron: "@every 1s"}}
			p := b.start(hostOptions{Schedules: s, Failpoint: point + "=kill:2", Unready: true})
			if code := p.ended(time.Minute); code != -1 {
				t.Fatalf("exit code %d; want a kill:\n%s", code, p.out.tail(20))
			}
			b.start(hostOptions{Schedules: s})
			b.wait("select count(*) >= 6 from effect")
			b.everySecond("test.second")
		})
	}
}

// F61: three hosts with schedules of each second, minute and hour, killed, stopped and cut
// off from their sessions in turn: as many ticks as instants, and who is too late for one
// says nothing. The long form takes five minutes.
func TestF61AsManyTicksAsSeconds(t *testing.T) {
	t.Parallel()
	rounds := 6
	if soaking() {
		rounds = 100
	}
	b := newBed(t)
	f := b.keep(3, hostOptions{Schedules: []timed{{Name: "test.second", Cron: "@every 1s"}, {Name: "test.minute", Cron: "* * * * *"}, {Name: "test.hour", Cron: "0 * * * *"}}})
	b.wait("select count(*) >= 1 from effect")
	first := map[string]time.Time{} // an instant of a moment ago, so that there is one at all
	for name, unit := range map[string]string{"test.minute": "minute", "test.hour": "hour"} {
		first[name] = ask[time.Time](b, "update pgmill.schedule set next_at = date_trunc($2, now()), version = version + 1 where name = $1 returning next_at", name, unit)
	}
	for i := range rounds {
		p := f.some(i)
		if p == nil {
			continue
		}
		switch i % 3 {
		case 0:
			p.kill()
		case 1:
			p.pause()
		default: // as the database's administrator does
			b.exec("select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name = 'pgmill ' || $1", p.out.instance())
		}
		b.wait("select count(*) >= $1 from pgmill.event where type = 'schedule.test.second'", 3*(i+1))
		p.resume()
	}
	f.end()
	b.everySecond("test.second")
	b.everyInstant("test.minute", first["test.minute"], time.Minute)
	b.everyInstant("test.hour", first["test.hour"], time.Hour)
	if n := ask[int](b, "select count(*) from pgmill.river_job where queue = 'job'") + ask[int](b, "select count(*) from pgmill.job"); n != 0 {
		t.Errorf("%d jobs were made of ticks", n)
	}
	for _, p := range f.started {
		for _, line := range p.out.lines(`"level":"ERROR"`) {
			if !strings.Contains(line, "lease") {
				t.Errorf("a host says %s", line)
			}
		}
		if n := p.out.said("23505") + p.out.said("emit ticks"); n > 0 {
			t.Errorf("host %s was too late for a tick and says so %d times:\n%s", p.out.instance(), n, p.out.tail(40))
		}
	}
}

// everyInstant checks that a schedule has one event and one effect for each of its
// instants from the first on, once it has come to rest.
func (b *bed) everyInstant(name string, first time.Time, every time.Duration) {
	b.Helper()
	next := ask[time.Time](b, "with p as materialized (select mill.pause_schedule($1)) select d.next_at from p, pgmill.schedule d where d.name = $1", name)
	b.wait("select dormant from pgmill.subscription where name = $1", name)
	b.exactlyOnce(name, "schedule."+name)
	const at = `select coalesce(string_agg(to_char(at, 'DD HH24:MI'), ', ' order by at), '') from `
	got := ask[string](b, at+`(select (data ->> 'at')::timestamptz as at from pgmill.event where type = 'schedule.' || $1) e`, name)
	want := ask[string](b, at+`generate_series($1::timestamptz, $2::timestamptz - $3::interval, $3::interval) at`, first, next, every)
	if got != want || want == "" {
		b.Errorf("%s ticked at %s; want %s", name, got, want)
	}
}
