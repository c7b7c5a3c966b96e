package faults_test

import (
	"math/rand/v2"
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

// F61: three hosts with a schedule of each second, killed and stopped in turn: as
// many ticks as seconds. The long form takes five minutes.
func TestF61AsManyTicksAsSeconds(t *testing.T) {
	t.Parallel()
	rounds := 4
	if soaking() {
		rounds = 100
	}
	b := newBed(t)
	f := b.keep(3, hostOptions{Schedules: []timed{{Name: "test.second", Cron: "@every 1s"}, {Name: "test.minute", Cron: "* * * * *"}}})
	b.wait("select count(*) >= 1 from effect")
	for i := range rounds {
		p := f.some(i)
		if p == nil {
			continue
		}
		if rand.IntN(2) == 0 {
			p.kill()
		} else {
			p.pause()
		}
		b.wait("select count(*) >= $1 from pgmill.event where type = 'schedule.test.second'", 3*(i+1))
		p.resume()
	}
	f.end()
	b.everySecond("test.second")
}
