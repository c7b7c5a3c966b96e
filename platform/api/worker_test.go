package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// The contract of outside workers, behind HTTP.
func TestAWorkersLife(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.job("job.t.life", `{"a": 1}`)
	got, token := w.claimed("job.t.life")
	if got != id {
		t.Fatalf("claimed %s; want %s", got, id)
	}
	report := func(verb, more string) answer {
		return w.call(works, "POST", "/api/v1/worker/"+verb, fmt.Sprintf(`{"id": %q, "token": %q%s}`, id, token, more))
	}
	beat := fmt.Sprintf(`{"ids": [%q], "tokens": [%q]}`, id, token)
	if a := w.want(w.call(works, "POST", "/api/v1/worker/heartbeat", beat), 200, ""); !strings.Contains(a.body, `"cancelled":false`) {
		t.Errorf("the heartbeat answered %s", a.body)
	}
	w.want(report("release", ""), 200, "")
	w.want(report("complete", ""), 409, "lease_lost")
	if _, token = w.claimed("job.t.life"); token == "" {
		t.Fatal("what was released is not claimed again")
	}
	w.want(w.call(works, "POST", "/api/v1/worker/complete", fmt.Sprintf(`{"id": %q, "token": "1-wrong"}`, id)), 409, "lease_lost")
	w.want(report("complete", `, "output": {"n": 9223372036854775807}`), 200, "")
	w.want(report("complete", ""), 409, "lease_lost")
	w.want(report("fail", `, "reason": "a.b"`), 409, "lease_lost")
	if a := w.call(acme, "GET", "/api/v1/jobs/"+id, ""); a.text("state") != "SUCCEEDED" || !strings.Contains(a.body, `"result":{"n":9223372036854775807}`) || !strings.Contains(strings.ReplaceAll(a.body, " ", ""), `"output":{"n":9223372036854775807}`) {
		t.Errorf("the job is %s", a.body)
	}
}

// C21: a cancel is heard at the next heartbeat, and what the worker says after is late.
func TestACancelIsHeardAtTheHeartbeat(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.job("job.t.c", `{}`)
	id, token := w.claimed("job.t.c")
	w.want(w.call(acme, "POST", "/api/v1/jobs/"+id+"/cancel", ""), 200, "")
	if a := w.call(works, "POST", "/api/v1/worker/heartbeat", fmt.Sprintf(`{"ids": [%q], "tokens": [%q]}`, id, token)); !strings.Contains(a.body, `"cancelled":true`) {
		t.Errorf("the heartbeat answered %s", a.body)
	}
	w.want(w.call(works, "POST", "/api/v1/worker/complete", fmt.Sprintf(`{"id": %q, "token": %q}`, id, token)), 409, "lease_lost")
}

// C21: a result that is refused as late is noted where a host's is, once, by the attempt and
// the worker that it is of; a repeat of what counted, or another one's token, is not.
func TestALateResultIsNoted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	say := func(verb, id, token string) {
		t.Helper()
		w.want(w.call(works, "POST", "/api/v1/worker/"+verb, fmt.Sprintf(`{"id": %q, "token": %q, "reason": "t.x", "retry": false}`, id, token)), 409, "lease_lost")
	}
	noted := func(id, want string, late int64) {
		t.Helper()
		if got := ask[string](w, `select coalesce(string_agg(concat_ws(' ', attempt, instance, reason), ', ' order by ended_at), '') from pgmill.job_attempt where job = $1`, id); got != want {
			t.Errorf("the attempts are %q, want %q", got, want)
		}
		if got := w.late.Swap(0); got != late {
			t.Errorf("%d late results were heard of, want %d", got, late)
		}
	}
	w.job("job.t.late", `{}`)
	id, token := w.claimed("job.t.late")
	w.want(w.call(acme, "POST", "/api/v1/jobs/"+id+"/cancel", ""), 200, "")
	say("fail", id, token)
	say("complete", id, token)
	say("release", id, token)
	noted(id, "1 org:acme/w1 late_result", 2)
	if got := w.want(w.call(acme, "GET", "/api/v1/jobs/"+id, ""), 200, ""); got.text("state") != "CANCELLED" || !strings.Contains(got.body, `"reason":"late_result"`) {
		t.Errorf("the job is %s", got.body)
	}

	w.job("job.t.late", `{}`)
	id, first := w.claimed("job.t.late")
	w.exec(`update pgmill.job_lease set until = now()`)
	w.exec(`select pgmill.rescue_jobs('x')`)
	say("complete", id, first)
	noted(id, "1 org:acme/w1 host_lost, 1 org:acme/w1 lease_lost", 1)
	_, second := w.claimed("job.t.late")
	w.want(w.call(works, "POST", "/api/v1/worker/complete", fmt.Sprintf(`{"id": %q, "token": %q}`, id, second)), 200, "")
	say("complete", id, second)
	say("complete", id, first)
	say("complete", id, first[:20]+"0"+first[21:])
	say("complete", id, "1-wrong")
	noted(id, "1 org:acme/w1 host_lost, 1 org:acme/w1 lease_lost", 4)
	w.want(w.call(other, "POST", "/api/v1/worker/complete", fmt.Sprintf(`{"id": %q, "token": %q}`, id, second)), 404, "not_found")
	noted(id, "1 org:acme/w1 host_lost, 1 org:acme/w1 lease_lost", 0)
	if w.log.Len() > 0 {
		t.Errorf("the log says %s", w.log)
	}
}

// An output is checked as an input is; the claim stays, for another one or a failure.
func TestAnOutputMustBeOfItsSchema(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`insert into pgmill.function (name, kind, module, listens) values ('job.t.out', 'step', 't', '{job.t.out}')`)
	w.exec(`insert into pgmill.topic (name, function, max_attempts, max_runtime, backoff, backoff_max, output_schema)
		values ('job.t.out', 'job.t.out', 3, '30 s', '1 s', '1 min', '{"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}')`)
	w.job("job.t.out", `{}`)
	id, token := w.claimed("job.t.out")
	complete := func(token, output string) answer {
		return w.call(works, "POST", "/api/v1/worker/complete", fmt.Sprintf(`{"id": %q, "token": %q%s}`, id, token, output))
	}
	for output, path := range map[string]string{``: "", `, "output": {"n": "secret-canary"}`: "/n"} {
		a := w.want(complete(token, output), 422, "schema_validation_failed")
		if f := a.items("faults"); len(f) != 1 || f[0]["path"] != path || strings.Contains(a.body, "canary") {
			t.Errorf("%q is refused with %s", output, a.body)
		}
	}
	w.want(complete("1-wrong", `, "output": {"n": "x"}`), 409, "lease_lost")
	w.want(complete(token, `, "output": {"n": 9223372036854775807}`), 200, "")
	w.want(complete(token, `, "output": {"n": "x"}`), 409, "lease_lost")
}

func TestRefusedWorkerCalls(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, tt := range []struct {
		name, verb, body string
		status           int
		code             string
	}{
		{"no worker", "claim", `{"topics": ["job.a"]}`, 400, "invalid_field"},
		{"no topics", "claim", `{"worker": "w"}`, 400, "invalid_field"},
		{"a malformed topic", "claim", `{"worker": "w", "topics": ["a"]}`, 400, "invalid_field"},
		{"a topic that is no text", "claim", `{"worker": "w", "topics": [1]}`, 400, "invalid_json"},
		{"topics and pools that are empty", "claim", `{"worker": "w", "topics": [], "pools": []}`, 400, "invalid_field"},
		{"a malformed pool", "claim", `{"worker": "w", "pools": ["a b"]}`, 400, "invalid_field"},
		{"a label that is no text", "claim", `{"worker": "w", "topics": ["job.a"], "labels": {"a": 1}}`, 400, "invalid_json"},
		{"a label without a name", "claim", `{"worker": "w", "topics": ["job.a"], "labels": {"": "a"}}`, 400, "invalid_field"},
		{"none wanted", "claim", `{"worker": "w", "topics": ["job.a"], "n": 0}`, 400, "invalid_field"},
		{"beyond an int", "claim", `{"worker": "w", "topics": ["job.a"], "n": 4294967297}`, 400, "invalid_field"},
		{"a lease without end", "claim", `{"worker": "w", "topics": ["job.a"], "lease_secs": 90000}`, 400, "invalid_field"},
		{"a wait without end", "claim", `{"worker": "w", "topics": ["job.a"], "wait_ms": 30001}`, 400, "invalid_field"},
		{"a negative wait", "claim", `{"worker": "w", "topics": ["job.a"], "wait_ms": -1}`, 400, "invalid_field"},
		{"a field that there is not", "claim", `{"worker": "w", "topics": ["job.a"], "wait": 5}`, 400, "unknown_field"},
		{"a name in other letters", "claim", `{"Worker": "w", "topics": ["job.a"]}`, 400, "unknown_field"},
		{"ids without tokens", "heartbeat", `{"ids": ["a"]}`, 400, "invalid_field"},
		{"no token", "complete", `{"id": "a"}`, 400, "invalid_field"},
		{"a job that there is not", "complete", `{"id": "a", "token": "1-x"}`, 404, "not_found"},
		{"a name twice", "complete", `{"id": "a", "id": "b", "token": "1-x"}`, 400, "duplicate_key"},
		{"NUL", "complete", `{"id": "a", "token": "1-x", "output": {"a": "\u0000"}}`, 400, "invalid_json"},
		{"an output that is too large", "complete", `{"id": "a", "token": "1-x", "output": "` + strings.Repeat("a", 2<<20) + `"}`, 413, "too_large"},
		{"a reason that is no code", "fail", `{"id": "a", "token": "1-x", "reason": "It broke"}`, 400, "invalid_field"},
		{"a reason that acts", "fail", `{"id": "a", "token": "1-x", "reason": "host_lost"}`, 400, "invalid_field"},
		{"a reason without a dot", "fail", `{"id": "a", "token": "1-x", "reason": "deadlin"}`, 400, "invalid_field"},
		{"no reason", "fail", `{"id": "a", "token": "1-x"}`, 400, "invalid_field"},
		{"no percent", "progress", `{"id": "a", "token": "1-x"}`, 400, "invalid_field"},
		{"beyond all", "progress", `{"id": "a", "token": "1-x", "percent": 101}`, 400, "invalid_field"},
		{"a word with a line's end", "progress", `{"id": "a", "token": "1-x", "percent": 1, "message": "a\nb"}`, 400, "invalid_field"},
		{"a word that is too long", "progress", `{"id": "a", "token": "1-x", "percent": 1, "message": "` + strings.Repeat("é", 201) + `"}`, 413, "too_large"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := w.call(works, "POST", "/api/v1/worker/"+tt.verb, tt.body)
			if a.status != tt.status || a.text("code") != tt.code {
				t.Errorf("answered %d %s; want %d %s", a.status, a.body, tt.status, tt.code)
			}
		})
	}
}

// A claim that waits is answered when a job comes: at the bell, and without one soon.
func TestAClaimWaitsForAJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, rings := range []bool{true, false} {
		got := make(chan answer, 1)
		go func() {
			got <- w.call(works, "POST", "/api/v1/worker/claim", `{"worker": "w1", "topics": ["job.t.wait"], "wait_ms": 30000}`)
		}()
		w.waitFor(`select exists (select from pgmill.instance where id = 'org:acme/w1')`)
		id := w.job("job.t.wait", `{}`)
		if rings {
			w.bell.Ring()
		}
		select {
		case a := <-got:
			if jobs := a.items("jobs"); len(jobs) != 1 || jobs[0]["job_id"] != id {
				t.Errorf("bell %v: answered %s; want %s", rings, a.body, id)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("bell %v: the claim was not answered", rings)
		}
	}
	if a := w.call(works, "POST", "/api/v1/worker/claim", `{"worker": "w1", "topics": ["job.t.wait"], "wait_ms": 60}`); a.status != 200 || strings.TrimSpace(a.body) != `{"jobs":[]}` {
		t.Errorf("without a job it answered %d %s", a.status, a.body)
	}
}

// Two scopes' workers of one name are two: each has its own instance, lease, jobs and
// preference, and neither's end is the other's.
func TestWorkersOfOneName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	claim := func(key, topic string) []map[string]any {
		t.Helper()
		return w.want(w.call(key, "POST", "/api/v1/worker/claim", `{"worker": "w1", "topics": ["`+topic+`"], "n": 10}`), 200, "").items("jobs")
	}
	submit := func(key, topic, more string) string {
		t.Helper()
		return w.want(w.call(key, "POST", "/api/v1/jobs", `{"topic": "`+topic+`", "input": {}`+more+`}`), 200, "").text("job_id")
	}
	ours, theirs := submit(acme, "job.n", ""), submit(other, "job.n", "")
	a, b := claim(acme, "job.n"), claim(other, "job.n")
	if len(a) != 1 || len(b) != 1 || a[0]["job_id"] != ours || b[0]["job_id"] != theirs {
		t.Fatalf("claimed %v and %v; want each its own", a, b)
	}
	if got := ask[string](w, `select string_agg(id, ' ' order by id) from pgmill.instance where kind = 'outside'`); got != "org:acme/w1 org:other/w1" {
		t.Errorf("instances are %s", got)
	}
	body := fmt.Sprintf(`{"id": %q, "token": %q}`, ours, a[0]["token"])
	w.want(w.call(other, "POST", "/api/v1/worker/release", body), 404, "not_found")
	w.exec(`update pgmill.instance set last_seen = now() - interval '1 day' where id = 'org:other/w1'`)
	w.exec(`update pgmill.job_lease set until = now() where worker = 'org:other/w1'`)
	w.exec(`select pgmill.rescue_jobs('x')`)
	w.want(w.call(acme, "POST", "/api/v1/worker/complete", body), 200, "")
	if got := w.want(w.call(acme, "GET", "/api/v1/jobs/"+ours, ""), 200, "").text("worker"); got != "w1" {
		t.Errorf("the record's worker is %q, want w1", got)
	}

	// acme's job prefers acme's w1; that other's is live is nothing to it.
	claim(other, "job.p")
	preferring := submit(acme, "job.p", `, "preferred_worker": "w1"`)
	if got := w.want(w.call(acme, "GET", "/api/v1/jobs/"+preferring, ""), 200, "").text("waiting_for"); got != "no_workers" {
		t.Errorf("without a worker of its scope it waits for %q", got)
	}
	w.exec(`update pgmill.instance set last_seen = now() - interval '1 day' where id = 'org:acme/w1'`)
	if n := ask[int64](w, `select count(*) from mill.claim_jobs('anyone', '{job.p}')`); n != 1 {
		t.Errorf("%d jobs are claimed while the preferred worker is away, want 1", n)
	}
	preferring = submit(acme, "job.p", `, "preferred_worker": "w1"`)
	claim(acme, "job.q") // it is back
	if n := ask[int64](w, `select count(*) from mill.claim_jobs('anyone', '{job.p}')`); n != 0 {
		t.Error("a job goes to another one than the preferred worker, which is live")
	}
	if got := claim(acme, "job.p"); len(got) != 1 || got[0]["job_id"] != preferring {
		t.Errorf("the preferred worker gets %v", got)
	}
	w.exec(`insert into pgmill.instance (kind, id, ttl) values ('worker', 'host-1', '10 s')`)
	w.want(w.call(root, "POST", "/api/v1/worker/claim", `{"worker": "host-1", "topics": ["job.n"]}`), 400, "invalid_field")
}
