package job_test

import (
	"testing"
)

// A job that was only just submitted is next in line, wherever somebody looks; a fleet
// that has no room for it for longer than a look takes is full. What else it waits for
// is said at once.
func TestWhyAJobWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	me := w.rescuer()
	w.declare("job.why", `{}`)
	w.declare("job.alone", `{}`)
	w.exec(`insert into pgmill.instance_function (instance, function) values ($1, 'job.why')`, me)
	w.exec(`select mill.set_pools('{"topics": {"job.mapped": "p"}, "pools": {"p": {"requires": ["gpu"]}, "q": {}}}')`)
	w.exec(`select mill.claim_jobs('w1', '{job.mapped}', pools => '{q}')`)
	for _, tt := range []struct {
		name, topic, options, change string
		want                         string
	}{
		{"fresh", "job.why", `{}`, ``, "queued"},
		{"for longer than a look takes", "job.why", `{}`, `since = now() - interval '3 s'`, "pool_overloaded"},
		{"fresh, as its time came just now", "job.why", `{"delay_ms": 3600000}`, `since = now() - interval '1 h', due_at = now() - interval '100 ms'`, "queued"},
		{"its time came a while ago", "job.why", `{"delay_ms": 3600000}`, `since = now() - interval '1 h', due_at = now() - interval '3 s'`, "pool_overloaded"},
		{"its time has not come", "job.why", `{"delay_ms": 3600000}`, ``, "scheduled"},
		{"it was tried and rests", "job.why", `{"delay_ms": 3600000}`, `reason = 't.busy'`, "t.busy"},
		{"its key is at its limit", "job.why", `{}`, `due_at = 'infinity', blocked = 'x'`, "key_limit"},
		{"it asks for what nobody has", "job.why", `{"placement": {"gpu": "yes"}}`, ``, "no_workers"},
		{"no live host has its step", "job.alone", `{}`, ``, "no_live_host"},
		{"nobody has ever known its topic", "job.nobody", `{}`, ``, "no_pool_mapping"},
		{"its topic is a pool's in which nobody is", "job.mapped", `{}`, ``, "no_workers"},
		{"it prefers a pool that is not its topic's", "job.why", `{"preferred_pool": "p"}`, ``, "no_pool_mapping"},
		{"it requires what no pool of its topic offers", "job.mapped", `{"requires": ["tpu"]}`, ``, "no_pool_mapping"},
		{"it requires what a pool offers in which nobody is", "job.mapped", `{"requires": ["gpu"]}`, ``, "no_workers"},
	} {
		id := w.submit(tt.topic, `{}`, tt.options)
		if tt.change != "" {
			w.exec(`update pgmill.job_waiting set `+tt.change+` where job = $1`, id)
		}
		for _, sql := range []string{`select reason from mill.why_not_running where id = $1`, `select pgmill.get_job($1) ->> 'waiting_for'`} {
			if got := ask[string](w, sql, id); got != tt.want {
				t.Errorf("%s: %s = %s, want %s", tt.name, sql, got, tt.want)
			}
		}
	}
}

// C41: mill.health has what stopped moving and what ended without success lately.
func TestHealthOfJobs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	health := func() string {
		t.Helper()
		return ask[string](w, `select concat_ws(' ', status, reasons, counts) from mill.health where component = 'jobs'`)
	}
	if got := health(); got != `ok {} {"overdue": 0, "dead_letters_last_hour": 0}` {
		t.Errorf("at first: %s", got)
	}
	for range 2 {
		id := w.submit("job.h", `{}`, `{}`)
		_, token := w.claimed("job.h")
		w.exec(`select mill.fail_job($1, $2, 't.bad', false)`, id, token)
	}
	w.exec(`update pgmill.dead_letter set died_at = now() - interval '61 minutes' where job = (select min(job) from pgmill.dead_letter)`)
	if got := health(); got != `ok {dead_letters} {"overdue": 0, "dead_letters_last_hour": 1}` {
		t.Errorf("with a dead letter: %s", got)
	}
	id := w.submit("job.h", `{}`, `{"delay_ms":1}`)
	w.exec(`update pgmill.job_waiting set due_at = now() - interval '31 s' where job = $1`, id)
	if got := health(); got != `degraded {overdue,dead_letters} {"overdue": 1, "dead_letters_last_hour": 1}` {
		t.Errorf("with a job that nobody promotes: %s", got)
	}
}

// What mill.stuck shows: what runs on for a dead host or beyond its time, and what is long
// due; not what is only late by less than a host takes.
func TestWhatIsStuck(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_ = w.rescuer()
	w.declare("job.stuck", `{}`) // for a minute at most
	for _, tt := range []struct{ name, change, want string }{
		{"it runs", ``, ""},
		{"its host died just now", `update pgmill.instance set ttl = '10 s', last_seen = now() - interval '12 s' where id = 'me'`, ""},
		{"its host has been dead for longer than a rescue takes", `update pgmill.instance set ttl = '10 s', last_seen = now() - interval '16 s' where id = 'me'`, "host_lost"},
		{"its host left and it stayed", `update pgmill.instance set deregistered_at = now() where id = 'me'`, "host_lost"},
		{"its time is over just now", `update pgmill.river_job set attempted_at = now() - interval '90 s'`, ""},
		{"its time has been over for long", `update pgmill.river_job set attempted_at = now() - interval '121 s'`, "timeout"},
		{"it is due", `select pgmill.release_claims(array_agg(id)) from pgmill.river_job; update pgmill.job_waiting set due_at = now() - interval '20 s'`, ""},
		{"it has been due for long", `select pgmill.release_claims(array_agg(id)) from pgmill.river_job; update pgmill.job_waiting set due_at = now() - interval '31 s'`, "overdue"},
	} {
		id := w.submit("job.stuck", `{}`, `{}`)
		if got := w.admits(10, "{job.stuck}"); got["install"] != 1 {
			t.Fatalf("%s: admitted %v", tt.name, got)
		}
		if tt.change != "" {
			w.exec(tt.change)
		}
		if got := ask[string](w, `select coalesce(string_agg(kind || ' ' || id || ' ' || reason, ', '), '') from mill.stuck`); got != "" && got != "job "+id+" "+tt.want || (got == "") != (tt.want == "") {
			t.Errorf("%s: stuck is %q; want the job with %q", tt.name, got, tt.want)
		}
		w.exec(`update pgmill.instance set ttl = '1 h', last_seen = now(), deregistered_at = null where id = 'me'`)
		w.exec(`select mill.cancel('` + id + `')`)
	}
}

// What mill.queue_depth counts of each topic: what is ready, what runs, and what waits for
// its time or a limit.
func TestQueueDepth(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_ = w.rescuer()
	w.declare("job.depth", `{"per_key":1}`)
	w.exec(`select mill.set_pools('{"topics": {"job.depth": "deep"}, "pools": {"deep": {}}}')`)
	w.put(3, "job.depth", `{"delay_ms":3600000}`)
	w.put(4, "job.depth", `{"key":"k"}`)
	if got := w.admits(100, "{job.depth}"); got["install"] != 1 {
		t.Fatalf("admitted %v, want one of the key", got)
	}
	w.put(2, "job.depth", `{}`)
	if got := w.admits(1, "{job.depth}"); got["install"] != 1 {
		t.Fatalf("admitted %v, want one of the two", got)
	}
	w.put(5, "job.nobody", `{}`)
	if got := ask[string](w, `select string_agg(concat_ws(' ', topic, pool, ready, running, waiting), ', ' order by topic) from mill.queue_depth where topic in ('job.depth', 'job.nobody')`); got != "job.depth deep 1 2 6, job.nobody default 5 0 0" {
		t.Errorf("the depths are %s", got)
	}
	w.exec(`update pgmill.job_waiting set since = now() - interval '90 s' where topic = 'job.nobody'`)
	if got := ask[int](w, `select oldest_ready_seconds::int from mill.queue_depth where topic = 'job.nobody'`); got != 90 {
		t.Errorf("the oldest has been ready for %d s; want 90", got)
	}
}
