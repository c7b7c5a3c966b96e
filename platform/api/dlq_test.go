package api_test

import (
	"fmt"
	"strings"
	"testing"
)

// C92–C95: a dead letter is shown, retried once as a full clone, and gone.
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.want(w.call(acme, "POST", "/api/v1/jobs", `{"input": {"a": 1}, "topic": "job.t.d", "risk_tags": ["pii"], "capability": "db.write", "labels": {"l": "v"}, "priority": "batch", "requires": []}`), 200, "")
	trace := a.text("trace_id")
	id, token := w.claimed("job.t.d")
	w.want(w.call(acme, "POST", "/api/v1/worker/fail", fmt.Sprintf(`{"id": %q, "token": %q, "reason": "stock.empty", "retry": false}`, id, token)), 200, "")

	page := w.want(w.call(acme, "GET", "/api/v1/dlq/page?reason_code=stock.empty&topic=job.t.d", ""), 200, "").items("items")
	if len(page) != 1 || page[0]["job_id"] != id || page[0]["status"] != "JOB_STATUS_FAILED" || page[0]["reason_code"] != "stock.empty" || page[0]["last_state"] != "FAILED" || fmt.Sprint(page[0]["attempts"]) != "1" {
		t.Errorf("the page is %v", page)
	}
	if c := w.call(acme, "GET", "/api/v1/dlq/counts", ""); strings.TrimSpace(c.body) != `[{"reason_code":"stock.empty","topic":"job.t.d","count":1}]` {
		t.Errorf("the counts are %s", c.body)
	}
	again := w.want(w.call(acme, "POST", "/api/v1/dlq/"+id+"/retry", ""), 200, "").text("job_id")
	if !strings.HasPrefix(again, id+"-retry-") {
		t.Errorf("retried as %q", again)
	}
	if twice := w.call(acme, "POST", "/api/v1/dlq/"+id+"/retry", "").text("job_id"); twice != again {
		t.Errorf("retried twice as %q and %q", again, twice)
	}
	j := w.want(w.call(acme, "GET", "/api/v1/jobs/"+again, ""), 200, "")
	if j.text("trace_id") != trace || j.text("retry_of") != id || j.text("capability") != "db.write" || j.text("priority") != "batch" ||
		fmt.Sprint(j.object["risk_tags"], j.object["labels"], j.object["input"]) != "[pii] map[l:v] map[a:1]" {
		t.Errorf("the clone is %s", j.body)
	}
	if l := w.call(acme, "GET", "/api/v1/dlq", ""); strings.TrimSpace(l.body) != "[]" {
		t.Errorf("what was retried still shows: %s", l.body)
	}
	w.want(w.call(acme, "POST", "/api/v1/dlq/no-such-job/retry", ""), 404, "not_found")
	w.want(w.call(acme, "DELETE", "/api/v1/dlq/no-such-job", ""), 204, "")
}

// The id of a job that is retried whenever it dies says once that it is a retry.
func TestRetriesDoNotGrow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.job("job.t.r", `{}`)
	seen := map[string]bool{}
	for want := first; len(seen) < 4; {
		id, token := w.claimed("job.t.r")
		if id != want || seen[id] {
			t.Fatalf("claimed %s; want %s, which is new", id, want)
		}
		seen[id] = true
		w.want(w.call(acme, "POST", "/api/v1/worker/fail", fmt.Sprintf(`{"id": %q, "token": %q, "reason": "a.b", "retry": false}`, id, token)), 200, "")
		if len(seen)%2 == 0 {
			swept := w.want(w.call(acme, "POST", "/api/v1/dlq/retry", `{"all": true}`), 200, "").items("done")
			want, _ = swept[0]["retried_as"].(string)
		} else {
			want = w.want(w.call(acme, "POST", "/api/v1/dlq/"+id+"/retry", ""), 200, "").text("job_id")
		}
		if !strings.HasPrefix(want, first+"-retry-") || len(want) != len(first+"-retry-01234567") {
			t.Errorf("retried as %q", want)
		}
		if j := w.want(w.call(acme, "GET", "/api/v1/jobs/"+want, ""), 200, ""); j.text("retry_of") != id {
			t.Errorf("%s is a retry of %q; want %s", want, j.text("retry_of"), id)
		}
	}
}

// C93: pages by key and sweeps by filter miss nothing, whatever dies in one moment.
func TestDeadLettersInBulk(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`insert into pgmill.job (id, scope, topic, state, trace_id) select 'd' || g, 'org:acme', 'job.t.' || g % 2, 'FAILED', 't' from generate_series(1, 250) g`)
	w.exec(`insert into pgmill.dead_letter (job, scope, topic, state, reason, attempts, died_at) select id, scope, topic, state, 'a.b', 1, '2026-01-01' from pgmill.job`)
	seen := map[any]bool{}
	for cursor := ""; ; {
		a := w.want(w.call(acme, "GET", "/api/v1/dlq/page?limit=60"+cursor, ""), 200, "")
		for _, i := range a.items("items") {
			seen[i["job_id"]] = true
		}
		if a.text("next_cursor") == "" {
			break
		}
		cursor = "&cursor=" + a.text("next_cursor")
	}
	if len(seen) != 250 {
		t.Errorf("the pages show %d; want 250", len(seen))
	}
	for _, tt := range []struct{ verb, body, want string }{
		{"retry", `{"topic": "job.t.0", "limit": 100}`, "100 true"},
		{"retry", `{"topic": "job.t.0", "limit": 100}`, "25 false"},
		{"delete", `{"reason_code": "c.d"}`, "0 false"},
		{"delete", `{"all": true}`, "125 false"},
	} {
		a := w.want(w.call(acme, "POST", "/api/v1/dlq/"+tt.verb, tt.body), 200, "")
		if got := fmt.Sprint(len(a.items("done")), a.object["more"]); got != tt.want {
			t.Errorf("%s %s did %s; want %s", tt.verb, tt.body, got, tt.want)
		}
	}
	if n := ask[int](w, `select count(*)::int from pgmill.job where retry_of is not null`); n != 125 {
		t.Errorf("%d were retried; want 125", n)
	}
	for body, code := range map[string]string{`{}`: "invalid_field", `{"limit": 5}`: "invalid_field", `{"all": true, "limit": 1001}`: "invalid_field", `{"topics": "x"}`: "unknown_field", ``: "invalid_json"} {
		w.want(w.call(acme, "POST", "/api/v1/dlq/delete", body), 400, code)
	}
}

// Where a live job has a letter's unique_key, one retry and one in bulk say so.
func TestARetryMayBeRejected(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const job = `{"input": {}, "topic": "job.t.u", "unique_key": "u"}`
	w.want(w.call(acme, "POST", "/api/v1/jobs", job), 200, "")
	dead, token := w.claimed("job.t.u")
	w.want(w.call(acme, "POST", "/api/v1/worker/fail", fmt.Sprintf(`{"id": %q, "token": %q, "reason": "a.b", "retry": false}`, dead, token)), 200, "")
	live := w.want(w.call(acme, "POST", "/api/v1/jobs", job), 200, "").text("job_id")
	a := w.want(w.call(acme, "POST", "/api/v1/dlq/"+dead+"/retry", ""), 200, "")
	if got := a.text("job_id") + " " + a.header.Get("X-Outcome") + " " + a.header.Get("X-Reason"); got != live+" rejected unique_key" {
		t.Errorf("retried as %s, the job in the way is %s", got, live)
	}
	if a = w.want(w.call(acme, "POST", "/api/v1/dlq/retry", `{"all": true, "limit": 1}`), 200, ""); strings.TrimSpace(a.body) != `{"done":[],"rejected":["`+dead+`"],"more":false}` {
		t.Errorf("in bulk: %s", a.body)
	}
	w.want(w.call(acme, "POST", "/api/v1/jobs/"+live+"/cancel", ""), 200, "")
	if a = w.want(w.call(acme, "POST", "/api/v1/dlq/"+dead+"/retry", ""), 200, ""); a.header.Get("X-Outcome") != "accepted" {
		t.Errorf("with nothing in the way: %s", a.header.Get("X-Outcome"))
	}
}
