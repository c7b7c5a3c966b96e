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
		{"no reason", "fail", `{"id": "a", "token": "1-x"}`, 400, "invalid_field"},
		{"no percent", "progress", `{"id": "a", "token": "1-x"}`, 400, "invalid_field"},
		{"beyond all", "progress", `{"id": "a", "token": "1-x", "percent": 101}`, 400, "invalid_field"},
		{"a word with a line's end", "progress", `{"id": "a", "token": "1-x", "percent": 1, "message": "a\nb"}`, 413, "too_large"},
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
		w.waitFor(`select exists (select from pgmill.instance where id = 'w1')`)
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
