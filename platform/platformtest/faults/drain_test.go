package faults_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// F46: SIGTERM lets handlers finish within the grace, hands the rest back without a
// failed attempt, and ends with 0 within grace + 2 s; another host goes on at once.
func TestF46SIGTERMHandsWorkBack(t *testing.T) {
	t.Parallel()
	const grace = 2 * time.Second
	tests := []struct {
		name    string
		order   order
		calls   int // of the event in flight
		atMost  time.Duration
		handsOn bool // what was in flight is done by the other host
	}{
		{name: "a handler that ends within the grace is not disturbed", order: order{Millis: 800}, calls: 1, atMost: grace},
		{name: "one that would not is cut short and starts elsewhere", order: order{Gate: "go"}, calls: 2, atMost: grace + 2*time.Second, handsOn: true},
		{name: "one that does not listen is left behind", order: order{Gate: "go", Deaf: true}, calls: 2, atMost: grace + 2*time.Second, handsOn: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			s := sub{Name: "test.lots", Events: "t.*", Shards: 3, Attempts: 1, Batch: 5, Timeout: time.Minute}
			o := hostOptions{Subs: []sub{s}, Args: []string{fmt.Sprint("--grace=", grace)}}
			h1 := b.start(o)
			id := b.emit("t.x", "t0", "", tt.order)
			b.wait("select count(*) = 1 from seen where event = $1", id)
			h2 := b.start(o)
			b.wait("select clock_timestamp() - since > ttl from pgmill.instance where id = $1", h2.ID)
			b.exec("select count(mill.emit('t.x', 'u' || g)) from generate_series(1, 200) g")
			h1.signal(syscall.SIGTERM)
			began := time.Now()
			if code := h1.ended(tt.atMost + 3*time.Second); code != 0 && !tt.order.Deaf {
				t.Errorf("exit code %d; want 0:\n%s", code, h1.out.tail(20))
			}
			if took := time.Since(began); took > tt.atMost {
				t.Errorf("it took %v to end; want at most %v", took, tt.atMost)
			}
			left := ask[time.Time](b, "select clock_timestamp()")
			if tt.handsOn {
				b.wait("select count(*) = 2 from seen where event = $1", id)
				again := ask[float64](b, "select extract(epoch from max(created_at) - $1)::float8 from pgmill.river_job where attempted_by[array_upper(attempted_by, 1)] = $2", left, h2.ID)
				if again > 2 {
					t.Errorf("it could start elsewhere %.2f s after the end; want within 2 s", again)
				}
				b.exec("insert into gate values ('go')")
			}
			b.finished()
			b.exactlyOnce(s.Name, "t.%")
			if got := ask[int](b, "select count(*) from seen where event = $1", id); got != tt.calls {
				t.Errorf("the event in flight was handled %d times; want %d", got, tt.calls)
			}
			if got := ask[int](b, "select count(*) from pgmill.shard where attempts > 0 or reason is not null"); got != 0 {
				t.Errorf("%d shards count a failed attempt", got)
			}
			if got := ask[bool](b, "select deregistered_at is not null from pgmill.instance where id = $1", h1.ID); !got && !tt.order.Deaf {
				t.Errorf("the lease was not given up")
			}
		})
	}
}

// F46: rolling restarts under load burn no attempt and lose nothing.
func TestF46RollingRestartsBurnNoAttempts(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	rounds, events := 4, 2000
	if soaking() {
		rounds, events = 40, 60_000
	}
	s := lots
	s.Attempts = 1
	o := hostOptions{Subs: []sub{s}}
	hosts := []*proc{b.start(o), b.start(o)}
	emitted := b.traffic("t.x", events)
	for i := range rounds {
		b.wait("select count(*) >= $1 from effect", (i+1)*events/(2*rounds))
		hosts[i%2].signal(syscall.SIGTERM)
		if code := hosts[i%2].ended(15 * time.Second); code != 0 {
			t.Errorf("exit code %d; want 0:\n%s", code, hosts[i%2].out.tail(20))
		}
		hosts[i%2] = b.start(o)
	}
	emitted()
	b.finished()
	b.exactlyOnce(s.Name, "t.%")
	if got := ask[int](b, "select count(*) from pgmill.shard where attempts > 0 or reason is not null or suspect_left > 0"); got != 0 {
		t.Errorf("%d shards were marked by a clean stop", got)
	}
}

// F46 for jobs: what does not end within the grace, and what was fetched and has not begun,
// is handed back without a failed attempt, and another host has it within two seconds.
func TestF46SIGTERMHandsJobsBack(t *testing.T) {
	t.Parallel()
	const grace, each = 2 * time.Second, 20
	const long = `{"millis": 50000, "once": true}`
	b := newJobBed(t)
	in, out := inside, outside
	in.Attempts, out.Attempts = 1, 1
	o := hostOptions{Steps: []step{in, out}, Args: []string{fmt.Sprint("--grace=", grace)}}
	few := o
	few.Args = append(few.Args, "--max-conns=1")
	h1 := b.start(few)
	b.order(0, in, long, `{}`) // has the one connection that the others of its topic need
	b.wait("select count(*) = 1 from did")
	for i := 1; i <= each; i++ {
		b.order(i, out, long, `{}`)
		b.order(each+i, in, `{}`, `{}`)
		b.order(2*each+i, out, `{"gate": "short"}`, `{}`)
	}
	b.wait("select count(*) = $1 from pgmill.river_job where state = 'running'", 1+3*each)
	b.wait("select count(*) = $1 from did", 1+2*each)
	h2 := b.start(o)
	h1.signal(syscall.SIGTERM)
	began := time.Now()
	b.exec("insert into gate values ('short')")
	if code := h1.ended(grace + 5*time.Second); code != 0 {
		t.Errorf("exit code %d; want 0:\n%s", code, h1.out.tail(20))
	}
	if took := time.Since(began); took > grace+2*time.Second {
		t.Errorf("it took %v to end; want at most %v", took, grace+2*time.Second)
	}
	left := ask[time.Time](b, "select clock_timestamp()")
	b.endedJobs()
	b.allOnce()
	if got := b.list("select format('%s with attempt %s by %s', count(*), attempt, case instance when $1 then 'the first' when $2 then 'the second' end) from pgmill.job group by attempt, instance order by 1", h1.ID, h2.ID); got != "20 with attempt 1 by the first\n41 with attempt 1 by the second" {
		t.Errorf("they were done\n%s", got)
	}
	if again := ask[float64](b, "select extract(epoch from max(started_at) - $1)::float8 from pgmill.job", left); again > 2 {
		t.Errorf("the last started elsewhere %.2f s after the end; want within 2 s", again)
	}
	if got := ask[int](b, "select count(*) from pgmill.job_attempt"); got != 0 {
		t.Errorf("%d attempts were burnt", got)
	}
	if got := ask[int](b, "select count(*) from did where n > $1", 2*each); got != each {
		t.Errorf("the %d short ones were begun %d times", each, got)
	}
}

// F46: a rolling deploy of two hosts under jobs of one attempt strands none and burns none.
func TestF46RollingDeployStrandsNoJob(t *testing.T) {
	t.Parallel()
	b := newJobBed(t)
	rounds, each := 4, 100
	if soaking() {
		rounds, each = 40, 1000
	}
	steps := []step{inside, outside}
	for i := range steps {
		steps[i].Attempts = 1
	}
	o := hostOptions{Steps: steps, Args: []string{"--lease-ttl=15s"}} // that a lease runs out on a slow machine is another thing
	hosts := []*proc{b.start(o), b.start(o)}
	for i := range rounds {
		for j := range each {
			b.order(i*each+j, steps[j%2], fmt.Sprintf(`{"millis": %d}`, 20*j%600), `{}`)
		}
		b.wait("select count(*) >= $1 from did", i*each+each/2)
		hosts[i%2].signal(syscall.SIGTERM)
		if code := hosts[i%2].ended(15 * time.Second); code != 0 {
			t.Errorf("exit code %d; want 0:\n%s", code, hosts[i%2].out.tail(20))
		}
		hosts[i%2] = b.start(o)
	}
	b.endedJobs()
	b.allOnce()
	if got := b.list("select format('%s of %s', count(*), reason) from pgmill.job_attempt group by reason"); got != "" {
		t.Errorf("attempts were burnt:\n%s", got)
	}
}
