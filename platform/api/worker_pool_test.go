package api_test

import (
	"fmt"
	"regexp"
	"testing"
)

// C28, C30, C35: a worker says which pools it is of and which labels it has; the job says
// which it wants, in fields or in the labels that stand for them.
func TestWorkersOfPoolsAndPlaces(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`select mill.set_pools('{"topics": {"job.r": ["cpu", "gpu"]}, "pools": {"cpu": {}, "gpu": {"requires": ["gpu"]}}}')`)
	claims := func(more string) string {
		t.Helper()
		jobs := w.want(w.call(works, "POST", "/api/v1/worker/claim", `{"worker": "w1", `+more+`}`), 200, "").items("jobs")
		if len(jobs) == 0 {
			return ""
		}
		return jobs[0]["job_id"].(string)
	}
	for _, tt := range []struct{ name, job, not, but, waits string }{
		{"a pool", ``, `"pools": ["other"]`, `"pools": ["cpu"]`, "no_workers"},
		{"a topic of other pools", ``, `"pools": ["other"], "topics": ["job.r"]`, `"topics": ["job.r"]`, "no_workers"},
		{"what a pool offers", `, "requires": ["gpu"]`, `"topics": ["job.r"]`, `"pools": ["gpu"]`, "no_workers"},
		{"a preferred pool", `, "labels": {"preferred_pool": "gpu"}`, `"pools": ["cpu"]`, `"pools": ["gpu"]`, "no_workers"},
		{"the field before the label", `, "preferred_pool": "cpu", "labels": {"preferred_pool": "gpu"}`, `"pools": ["gpu"]`, `"pools": ["cpu"]`, "no_workers"},
		{"a placement", `, "placement": {"zone": "a"}`, `"topics": ["job.r"]`, `"topics": ["job.r"], "labels": {"zone": "a", "b": "c"}`, "no_workers"},
		{"a placement in labels", `, "labels": {"place.zone": "a", "zone": "b"}`, `"pools": ["cpu"], "labels": {"zone": "b"}`, `"pools": ["cpu"], "labels": {"zone": "a"}`, "no_workers"},
	} {
		id := w.want(w.call(acme, "POST", "/api/v1/jobs", `{"topic": "job.r", "input": {}`+tt.job+`}`), 200, "").text("job_id")
		if got := claims(tt.not); got != "" {
			t.Errorf("%s: with %s it is claimed", tt.name, tt.not)
		}
		if got := w.call(acme, "GET", "/api/v1/jobs/"+id, "").text("waiting_for"); got != tt.waits {
			t.Errorf("%s: it waits for %q, want %q", tt.name, got, tt.waits)
		}
		if got := claims(tt.but); got != id {
			t.Errorf("%s: with %s %q is claimed, want %s", tt.name, tt.but, got, id)
		}
	}
	id := w.want(w.call(acme, "POST", "/api/v1/jobs", `{"topic": "job.r", "input": {}, "labels": {"preferred_pool": "none"}}`), 200, "").text("job_id")
	if got := w.call(acme, "GET", "/api/v1/jobs/"+id, "").text("waiting_for"); got != "no_pool_mapping" {
		t.Errorf("with a pool that is none of its topic's it waits for %q", got)
	}
}

// C35: what systems write into labels is no placement: such jobs, and dead letters that
// come again, are done by a worker without labels.
func TestSystemLabelsAreNoPlacement(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, labels := range []string{
		`{"dry_run": "true"}`,
		`{"retry": "true", "dlq_entry": "1", "retry_of_job": "x"}`,
		`{"approval_granted": "true", "approval_reason": "fine", "approval_note": "so be it"}`,
		`{"remediation_of": "x", "remediation_id": "r1"}`,
		`{"mcp.server": "s", "mcp.tool": "t", "cordum.x": "y", "workflow_id": "w", "run_id": "r", "step_id": "s", "node_id": "n", "worker_id": "other", "secrets_present": "true"}`,
	} {
		ends := func(verb, more string) {
			t.Helper()
			id, token := w.claimed("job.l")
			w.want(w.call(works, "POST", "/api/v1/worker/"+verb, fmt.Sprintf(`{"id": %q, "token": %q%s}`, id, token, more)), 200, "")
		}
		id := w.want(w.call(acme, "POST", "/api/v1/jobs", `{"topic": "job.l", "input": {}, "labels": `+labels+`}`), 200, "").text("job_id")
		ends("fail", `, "reason": "t.broken", "retry": false`)
		again := w.want(w.call(acme, "POST", "/api/v1/dlq/"+id+"/retry", ""), 200, "").text("job_id")
		ends("complete", "")
		if a := w.call(acme, "GET", "/api/v1/jobs/"+again, ""); a.text("state") != "SUCCEEDED" {
			t.Errorf("with labels %s it is %s", labels, a.body)
		}
	}
}

// C36, C37: the workers that live, page by page, each key its own scope's.
func TestWorkersAreListed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`select mill.set_pools('{"topics": {"job.a": "p", "job.b": "q"}, "pools": {"p": {"requires": ["gpu"]}, "q": {}}}')`)
	w.exec(`insert into pgmill.instance (kind, id, ttl) values ('worker', 'host-1', '1 h'), ('worker', 'host-2', '1 h'); update pgmill.instance set last_seen = now() - interval '2 h' where id = 'host-2'`)
	w.exec(`insert into pgmill.instance_function values ('host-1', 'job.a'), ('host-1', 'sub.x')`)
	w.job("job.a", `{}`)
	w.want(w.call(works, "POST", "/api/v1/worker/claim", `{"worker": "w1", "pools": ["q"]}`), 200, "")
	w.want(w.call(works, "POST", "/api/v1/worker/claim", `{"worker": "w1", "pools": ["p"], "labels": {"zone": "a"}}`), 200, "")
	w.want(w.call(other, "POST", "/api/v1/worker/claim", `{"worker": "w1", "topics": ["job.b"]}`), 200, "")
	const seen = `"updated_at":[0-9]{16}}`
	for key, want := range map[string]string{
		acme:  `\[{"worker_id":"w1","kind":"outside","tenant":"acme","pool":"p","pools":\["p"\],"labels":{"zone":"a"},"topics":\["job.a"\],"capabilities":\["gpu"\],"active_jobs":1,` + seen + `\]`,
		other: `\[{"worker_id":"w1","kind":"outside","tenant":"other","topics":\["job.b"\],` + seen + `\]`,
		root:  `\[{"worker_id":"host-1","kind":"host","tenant":"default","topics":\["job.a"\],` + seen + `,{.*"acme".*},{.*"other".*}\]`,
	} {
		w.looks(w.want(w.call(key, "GET", "/api/v1/workers", ""), 200, ""), want)
	}
	var pages string
	cursor := ""
	for n := 0; n < 3; n++ {
		a := w.want(w.call(root, "GET", "/api/v1/workers/page?limit=1&cursor="+cursor, ""), 200, "")
		for _, i := range a.items("items") {
			pages += fmt.Sprint(i["tenant"], " ")
		}
		cursor = a.text("next_cursor")
	}
	if pages != "default acme other " || cursor != "" {
		t.Errorf("page by page it is %q, and then %q", pages, cursor)
	}
	for _, key := range []string{reads, works} {
		w.want(w.call(key, "GET", "/api/v1/workers", ""), 403, "denied")
	}
	w.want(w.call(root, "GET", "/api/v1/workers?cursor=x", ""), 400, "invalid_field")
}

// looks fails unless the answer's body is of this form.
func (w world) looks(a answer, form string) {
	w.Helper()
	if !regexp.MustCompile("^" + form + "\n?$").MatchString(a.body) {
		w.Errorf("answered %s; want the form %s", a.body, form)
	}
}
