package faults_test

import (
	"testing"
	"time"
)

// F14, N34: killed between any two steps of a batch, then restarted.
func TestF14KilledAtEachStep(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"in-handler", "after-handler", "before-settle", "after-settle"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			s := sub{Name: "test.one", Events: "t.*", Batch: 10}
			b.exec("select count(mill.emit('t.x', 'g' || g)) from generate_series(1, 100) g")
			for _, nth := range []string{"1", "3"} {
				p := b.start(hostOptions{Subs: []sub{s}, Failpoint: point + "=kill:" + nth, Unready: true})
				if code := p.ended(time.Minute); code != -1 {
					t.Fatalf("exit code %d; want a kill:\n%s", code, p.out.tail(20))
				}
			}
			b.start(hostOptions{Subs: []sub{s}})
			b.finished()
			b.exactlyOnce(s.Name, "t.%")
		})
	}
}

// F09, F49: stopped between the handler and the commit, past its lease; the stale
// commit is refused.
func TestF09StoppedBeforeTheCommit(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"after-handler", "before-settle"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			s := sub{Name: "test.one", Events: "t.*", Batch: 10}
			b.exec("select count(mill.emit('t.x', 'g' || g)) from generate_series(1, 100) g")
			h1 := b.start(hostOptions{Subs: []sub{s}, Failpoint: point + "=stop:2", Unready: true})
			b.wait("select count(*) > 0 and bool_and(not live) from mill.instances")
			b.start(hostOptions{Subs: []sub{s}})
			b.finished()
			h1.resume()
			b.wait("select live from mill.instances where id = $1", h1.out.instance())
			b.exec("select count(mill.emit('t.x', 'h' || g)) from generate_series(1, 50) g")
			b.finished()
			b.exactlyOnce(s.Name, "t.%")
		})
	}
}

// X3, C44: killed between any two steps of a job's way, from its admission to its end, then
// started again.
func TestX3JobsOfHostsKilledAtEachStep(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"job-admitted", "job-before-settle", "job-after-settle"} {
		for _, s := range []step{inside, outside} {
			t.Run(point+", "+s.Topic, func(t *testing.T) {
				t.Parallel()
				b := newJobBed(t)
				o := hostOptions{Steps: []step{s}}
				for i := range 20 {
					b.order(i, s, `{}`, `{}`)
				}
				o.Failpoint, o.Unready = point+"=kill:1", true
				if p := b.start(o); p.ended(time.Minute) != -1 {
					t.Fatalf("exit code %d; want a kill:\n%s", p.cmd.ProcessState.ExitCode(), p.out.tail(20))
				}
				b.start(hostOptions{Steps: []step{s}})
				b.endedJobs()
				b.allOnce()
			})
		}
	}
}

// F34, C44: stopped between the effect and the commit, past its lease: another host does
// what it had, and its own settle, when it goes on, is refused.
func TestF34StoppedBeforeTheSettle(t *testing.T) {
	t.Parallel()
	for _, s := range []step{inside, outside} {
		t.Run(s.Topic, func(t *testing.T) {
			t.Parallel()
			b := newJobBed(t)
			for i := range 20 {
				b.order(i, s, `{}`, `{}`)
			}
			h1 := b.start(hostOptions{Steps: []step{s}, Failpoint: "job-before-settle=stop:1", Unready: true})
			b.wait("select count(*) > 0 and bool_and(not live) from mill.instances")
			h2 := b.start(hostOptions{Steps: []step{s}})
			b.endedJobs()
			h1.resume()
			b.wait("select live from mill.instances where id = $1", h1.out.instance())
			b.wait("select exists (select from pgmill.job_attempt where instance = $1 and reason = 'late_result')", h1.out.instance())
			b.allOnce()
			if got := b.list("select distinct instance from pgmill.job where attempt = 2"); got != h2.ID {
				t.Errorf("the second attempts are of %s; want %s", got, h2.ID)
			}
		})
	}
}
