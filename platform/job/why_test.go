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
