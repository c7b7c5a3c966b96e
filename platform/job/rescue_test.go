package job_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/platformtest"
)

// dead makes an instance that stopped renewing long ago, and gives it these jobs'
// claims, as if it had been running them.
func (w world) dead(name, topic string, n int) {
	w.Helper()
	w.exec(`insert into pgmill.instance (kind, id, ttl, since) values ('worker', $1, '10 s', now() - interval '1 h')`, name)
	if got := ask[int64](w, `select count(*) from pgmill.admit($1, array[$2], $3)`, name, topic, n); got != int64(n) {
		w.Fatalf("admitted %d of %d", got, n)
	}
	w.exec(`update pgmill.instance set last_seen = now() - interval '1 h' where id = $1`, name)
}

// rescuer is an instance that may judge others.
func (w world) rescuer() string {
	w.exec(`insert into pgmill.instance (kind, id, ttl, since) values ('worker', 'me', '1 h', now() - interval '2 h') on conflict do nothing`)
	return "me"
}

// F36, DESIGN 4: a host's death is a failed attempt of each job that it held; the
// first costs no rest, the second makes a suspect, and a job whose attempts are spent
// ends in the dead letters with host_lost.
func TestHostDeathIsAFailedAttempt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	me := w.rescuer()
	id := w.submit("job.r", `{}`, `{"max_attempts":3}`)
	for death := 1; death <= 3; death++ {
		w.exec(`update pgmill.job_waiting set due_at = null, seq = nextval('pgmill.job_seq')`) // its rest is over
		w.dead(fmt.Sprint("h", death), "job.r", 1)
		if n := ask[int64](w, `select pgmill.rescue_jobs($1)`, me); n != 1 {
			t.Fatalf("death %d: rescued %d", death, n)
		}
		got := ask[string](w, `select concat_ws(' ', j.state, j.attempt, j.reason, left(w.demand, 1), w.due_at is not null)
			from pgmill.job j left join pgmill.job_waiting w on w.job = j.id where j.id = $1`, id)
		want := []string{"PENDING 1 host_lost ^ f", "PENDING 2 host_lost ! t", "FAILED 3 host_lost f"}[death-1]
		if got != want {
			t.Errorf("after death %d: %s; want %s", death, got, want)
		}
	}
	if got := ask[string](w, `select state || ' ' || reason || ' ' || attempts from mill.dead_letters where job_id = $1`, id); got != "FAILED host_lost 3" {
		t.Errorf("dead letter: %s", got)
	}
	if n := ask[int64](w, `select pgmill.rescue_jobs($1)`, me); n != 0 {
		t.Errorf("rescued %d more", n)
	}
}

// F33: a claim whose holder lives, whose lease is good, or that was settled meanwhile is
// not taken.
func TestRescueLeavesTheLiving(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	me := w.rescuer()
	_ = w.submit("job.r", `{}`, `{}`)
	_ = w.submit("job.o", `{}`, `{}`)
	if n := ask[int64](w, `select count(*) from pgmill.admit($1, '{job.r}', 1)`, me); n != 1 {
		t.Fatal(n)
	}
	_, token := w.claimed("job.o")
	if n := ask[int64](w, `select pgmill.rescue_jobs($1)`, me); n != 0 {
		t.Errorf("rescued %d", n)
	}
	w.exec(`update pgmill.job_lease set until = now() where token = $1`, token)
	if n := ask[int64](w, `select pgmill.rescue_jobs($1)`, me); n != 1 {
		t.Errorf("rescued %d of the one whose lease is over", n)
	}
}

// Suspects are admitted one at a time by each host, so that the one that kills takes
// nobody along.
func TestSuspectsRunSingly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	me := w.rescuer()
	for range 5 {
		_ = w.submit("job.s", `{}`, `{}`)
	}
	for death := range 2 {
		w.exec(`update pgmill.job_waiting set due_at = null, seq = nextval('pgmill.job_seq')`)
		w.dead(fmt.Sprint("h", death), "job.s", 5)
		_ = ask[int64](w, `select pgmill.rescue_jobs($1)`, me)
	}
	w.exec(`update pgmill.job_waiting set due_at = null, seq = nextval('pgmill.job_seq')`)
	for range 2 {
		_ = w.submit("job.s", `{}`, `{}`) // and two that are new
	}
	if n := ask[int64](w, `select count(*) from pgmill.admit($1, '{job.s}', 10)`, me); n != 3 {
		t.Errorf("admitted %d; want one suspect and two that are new", n)
	}
	if n := ask[int64](w, `select count(*) from pgmill.admit($1, '{job.s}', 10)`, me); n != 0 {
		t.Errorf("admitted %d more while it runs", n)
	}
}

// A suspect that its host gives back, told to stop, is one for the next host, too; one
// that came back by itself is none any more.
func TestSuspectsGivenBackStaySuspects(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	me := w.rescuer()
	_ = w.submit("job.s", `{}`, `{"max_attempts":9}`)
	again := func() { w.exec(`update pgmill.job_waiting set due_at = null, seq = nextval('pgmill.job_seq')`) }
	for death := range 2 {
		again()
		w.dead(fmt.Sprint("h", death), "job.s", 1)
		_ = ask[int64](w, `select pgmill.rescue_jobs($1)`, me)
	}
	for _, tt := range []struct{ end, want string }{
		{`select pgmill.release_claims(array_agg(id)) from pgmill.river_job where queue = 'job'`, "!"},
		{`with old as (update pgmill.river_job set attempted_at = now() - interval '1 h' where queue = 'job') select 1; select pgmill.release_unknown_jobs('me', '{}')`, "!"},
		{`select pgmill.end_claims(array_agg(id), '{failed}', '{t.x}', '{false}', '{null}') from pgmill.river_job where queue = 'job'`, "^"},
	} {
		again()
		if n := ask[int64](w, `select count(*) from pgmill.admit($1, '{job.s}', 10)`, me); n != 1 {
			t.Fatalf("admitted %d", n)
		}
		w.exec(tt.end)
		if got := ask[string](w, `select string_agg(demand, ' ') from pgmill.job_waiting`); got != tt.want {
			t.Errorf("after %s it waits among %q, want %q", tt.end, got, tt.want)
		}
	}
}

// F34: a host that was taken for dead and comes back has no say any more; the result is
// the new owner's.
func TestZombieIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	started, goOn := make(chan int, 2), make(chan struct{})
	step := platform.Step[json.RawMessage, map[string]int]{Topic: "job.z", Run: func(_ context.Context, a *platform.Attempt, _ json.RawMessage) (map[string]int, error) {
		started <- a.Number
		if a.Number == 1 {
			<-goOn
		}
		return map[string]int{"by": a.Number}, nil
	}}
	w.host(step)
	id := w.submit("job.z", `{}`, `{}`)
	<-started
	w.exec(`select pgmill.end_claims(array_agg(id), '{failed}', '{host_lost}', '{false}', '{null}') from pgmill.river_job where queue = 'job'`) // as a rescuer would
	w.becomes(id, "SUCCEEDED")
	close(goOn)
	platformtest.WaitFor(t, w.pool, `select exists (select from pgmill.job_attempt where job = $1 and reason = 'late_result')`, id)
	if got := ask[string](w, `select output::text from pgmill.job where id = $1`, id); got != `{"by": 2}` {
		t.Errorf("the output is %s", got)
	}
}

// A job that no one takes ends when it has waited as long as it may, with the reason
// that it waited for (C34); a deadline ends it whatever it is at (C46).
func TestWaitsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var ran atomic.Int64
	slow := work("job.w.slow", func(ctx context.Context, _ *platform.Attempt) error { ran.Add(1); <-ctx.Done(); return ctx.Err() })
	slow.Timeout = time.Hour
	unknown := w.submit("job.w.unknown", `{}`, `{"max_queue_wait_ms":50}`)
	w.host(slow)
	deadline := w.submit("job.w.slow", `{}`, `{"deadline_ms":2000}`)
	w.becomes(unknown, "TIMEOUT")
	w.becomes(deadline, "TIMEOUT")
	if a, b := w.reason(unknown), w.reason(deadline); a != "no_pool_mapping" || b != "deadline" || ran.Load() != 1 {
		t.Errorf("reasons %q and %q, %d ran", a, b, ran.Load())
	}
	if n := ask[int64](w, `select count(*) from mill.dead_letters`); n != 2 {
		t.Errorf("%d dead letters", n)
	}
}

// C97b: what may wait or take no longer is a TIMEOUT within a second of it, by the database's
// clock. On a machine that is busy with other things a round may be late; they are not all.
func TestTimesArePrecise(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	slow := work("job.p.slow", func(ctx context.Context, _ *platform.Attempt) error { <-ctx.Done(); return ctx.Err() })
	slow.Timeout = time.Hour
	w.host(slow)
	late := map[string]time.Duration{}
	for range 3 {
		ids := map[string]string{
			"waits for its deadline":  w.submit("job.p.none", `{}`, `{"deadline_ms":1700}`),
			"waits as long as it may": w.submit("job.p.none", `{}`, `{"max_queue_wait_ms":1300}`),
			"runs until its deadline": w.submit("job.p.slow", `{}`, `{"deadline_ms":1500}`),
			"runs elsewhere":          w.submit("job.p.else", `{}`, `{"deadline_ms":2100}`),
		}
		w.exec(`select mill.claim_jobs('w1', '{job.p.else}')`)
		most := time.Duration(0)
		for name, id := range ids {
			w.becomes(id, "TIMEOUT")
			took := ask[time.Duration](w, `select finished_at - coalesce(deadline_at, created_at + max_queue_wait) from pgmill.job where id = $1`, id)
			late[name] = took
			if most = max(most, took); took < 0 {
				t.Errorf("what %s ends %v before that", name, -took)
			}
		}
		if most <= time.Second {
			return
		}
	}
	t.Errorf("late each time, in the last round by %v", late)
}
