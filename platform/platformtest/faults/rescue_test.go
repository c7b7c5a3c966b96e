package faults_test

import (
	"fmt"
	"testing"
	"time"
)

// F31: jobs that run for five times the lease, two of them with all processors, are left to
// their host while it renews its lease: each is done once, at the first attempt.
func TestF31LongJobsOfABusyHostAreLeftToIt(t *testing.T) {
	b := newJobBed(t) // not in parallel: it takes all processors
	const long = 5 * ttl
	o := hostOptions{Steps: []step{inside, outside}}
	h := b.start(o)
	since := ask[time.Time](b, "select since from pgmill.instance")
	for i := range 10 {
		b.order(i, []step{inside, outside}[i%2], fmt.Sprintf(`{%q: %d}`, []string{"spin", "millis"}[min(1, i/2)], long.Milliseconds()), `{}`)
	}
	b.wait("select count(*) = 10 from did")
	b.start(o) // it may rescue
	b.endedJobs()
	b.allOnce()
	if got := b.list("select format('%s with attempt %s by %s', count(*), attempt, instance) from pgmill.job group by attempt, instance"); got != "10 with attempt 1 by "+h.ID {
		t.Errorf("they were done\n%s\nwant all by %s", got, h.ID)
	}
	if got := ask[int](b, "select (select count(*) from pgmill.job_attempt) + (select count(*) from did)"); got != 10 {
		t.Errorf("they were begun %d times", got)
	}
	if got := ask[float64](b, "select extract(epoch from min(finished_at - started_at))::float8 from pgmill.job"); got < long.Seconds() {
		t.Errorf("one took %.2f s only", got)
	}
	if got := ask[time.Time](b, "select since from pgmill.instance where id = $1", h.ID); !got.Equal(since) {
		t.Errorf("the lease is unbroken since %v; want since the start, %v", got, since)
	}
}

// F33: hosts are stopped, until about the end of their leases, while many short jobs end, so
// that rescues meet settles. No job that has ended is touched, none is done twice.
func TestF33RescuesMeetSettles(t *testing.T) {
	t.Parallel()
	b := newJobBed(t)
	rounds := 5
	if soaking() {
		rounds = 100
	}
	o := hostOptions{Steps: []step{inside, outside}}
	hosts := []*proc{b.start(o), b.start(o)}
	b.start(o)                                                                      // it rescues
	b.wait("select bool_and(clock_timestamp() - since > ttl) from pgmill.instance") // and may
	b.exec(`create function put(base bigint, many bigint) returns void language sql as $$
		with job as materialized (
		    select base + g as n, g % 2 = 1 as outside, mill.submit_job(case g % 2 when 0 then 'job.t.inside' else 'job.t.outside' end, jsonb_build_object('n', base + g, 'millis', g % 200)) as id
		      from generate_series(1, many) g
		)
		insert into wanted select n, id, outside, false from job $$`)
	const each = 300
	for i := range rounds {
		b.exec("select put($1, $2)", i*each, each)
		b.wait("select count(*) >= $1 from did", i*each+20)
		p := hosts[i%2]
		p.pause()
		b.wait("select clock_timestamp() > last_seen + ttl + $2 * interval '1 ms' from pgmill.instance where id = $1", p.ID, 150*(i%5-2))
		p.resume()
	}
	b.endedJobs()
	b.wait("select bool_and(live) from mill.instances")
	b.allOnce()
	t.Logf("%d rescued, %d results came late", ask[int](b, "select count(*) from pgmill.job_attempt where reason = 'host_lost'"), ask[int](b, "select count(*) from pgmill.job_attempt where reason in ('late_result', 'lease_lost')"))
}
