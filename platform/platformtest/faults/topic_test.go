package faults_test

import (
	"testing"
)

// F35: jobs of a topic that only a newer build knows. The old host beside it never takes,
// discards or fails one, and goes on with its own; while no host knows the topic each says
// so, and all are done once one is back.
func TestF35OldHostLeavesWhatANewerOneKnows(t *testing.T) {
	t.Parallel()
	const n = 100
	b := newJobBed(t)
	newer := step{Topic: "job.t.newer", Outside: true, Attempts: 2}
	waits := func(reason string) {
		t.Helper()
		for i := range 20 {
			b.order(ask[int](b, "select count(*) from wanted"), inside, `{"millis": 20}`, `{}`)
			if i%10 == 9 { // so that the old host looks again and again
				b.wait("select not exists (select from pgmill.job where topic = $1 and state = 'PENDING')", inside.Topic)
			}
		}
		if got := b.list("select format('%s of %s', count(*), reason) from mill.why_not_running group by reason"); got != "100 of "+reason {
			t.Errorf("there wait %s; want 100 of %s", got, reason)
		}
	}
	b.start(hostOptions{Steps: []step{inside}})
	for i := range n {
		b.order(i, newer, `{"millis": 60000, "once": true}`, `{}`)
	}
	waits("no_pool_mapping")
	o := hostOptions{Steps: []step{inside, newer}}
	h := b.start(o)
	b.wait("select count(*) = $1 from did where n < $1", n)
	h.kill()
	b.wait("select count(*) = $1 from pgmill.job_attempt", n)
	waits("no_live_host")
	b.start(o)
	b.endedJobs()
	b.allOnce()
	if got := b.list("select distinct concat_ws(' ', a.attempt, a.reason, a.instance, j.attempt) from pgmill.job_attempt a join pgmill.job j on j.id = a.job"); got != "1 host_lost "+h.ID+" 2" {
		t.Errorf("the attempts are\n%s\nwant one each that died with %s", got, h.ID)
	}
}
