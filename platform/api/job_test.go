package api_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// C10, C11, C18: a submit that says no more than a prompt, and the record of it.
func TestASubmitWithNoMoreThanAPrompt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.want(w.call(acme, "POST", "/api/v1/jobs", `{"prompt": "hello", "context": {"big": 9007199254740993}, "labels": {"env": "prod"}, "risk_tags": ["pii"], "zzz": 1, "priority": "urgent"}`), 200, "")
	if len(a.object) != 2 || a.text("job_id") == "" || a.text("trace_id") == "" {
		t.Errorf("answered %s; want job_id and trace_id and no more", a.body)
	}
	if got := a.header.Get("X-Ignored-Fields"); got != "zzz, priority" {
		t.Errorf("X-Ignored-Fields = %q; want those that were passed over", got)
	}
	id := a.text("job_id")
	got := w.want(w.call(acme, "GET", "/api/v1/jobs/"+id, ""), 200, "")
	for _, name := range strings.Fields(`actor_id actor_type approval_ref approval_required attempts capability context context_ptr id idempotency_key labels
		pack_id requires result result_ptr risk_tags run_id safety_constraints safety_decision safety_job_hash safety_reason safety_remediations
		safety_rule_id safety_snapshot state step_id tenant topic trace_id workflow_id`) {
		if _, ok := got.object[name]; !ok {
			t.Errorf("the record lacks %s: %s", name, got.body)
		}
	}
	context, _ := got.object["context"].(map[string]any)
	if got.text("state") != "PENDING" || got.text("tenant") != "acme" || got.text("topic") != "job.default" || got.text("safety_decision") != "" ||
		context["prompt"] != "hello" || fmt.Sprint(context["context"]) != "map[big:9007199254740993]" || fmt.Sprint(got.object["risk_tags"]) != "[pii]" {
		t.Errorf("the record is %s", got.body)
	}
	if scope := ask[string](w, `select scope || ' ' || submitted_by from pgmill.job where id = $1`, id); scope != "org:acme key:acme" {
		t.Errorf("scope and submitter = %q", scope)
	}
	list := w.want(w.call(acme, "GET", "/api/v1/jobs?limit=1", ""), 200, "")
	if items := list.items("items"); len(items) != 1 || items[0]["id"] != id || list.object["next_cursor"] != nil {
		t.Errorf("the list is %s", list.body)
	}
	if trace := w.call(acme, "GET", "/api/v1/traces/"+a.text("trace_id"), ""); !strings.Contains(trace.body, id) {
		t.Errorf("the trace is %s", trace.body)
	}
	if d := w.call(acme, "GET", "/api/v1/jobs/"+id+"/decisions", ""); strings.TrimSpace(d.body) != "[]" {
		t.Errorf("before anybody asked the decisions are %s", d.body)
	}
	_ = ask[int64](w, `select count(*) from mill.claim_jobs('w1', '{job.default}')`)
	if got := w.call(acme, "GET", "/api/v1/jobs/"+id, ""); got.text("safety_decision") != "ALLOW" {
		t.Errorf("the record of the job that runs is %s", got.body)
	}
	if d := w.call(acme, "GET", "/api/v1/jobs/"+id+"/decisions", ""); !strings.HasPrefix(d.body, `[{"decision":"ALLOW","checked_at":`) {
		t.Errorf("the decisions are %s", d.body)
	}
	if d := w.call(other, "GET", "/api/v1/jobs/"+id+"/decisions", ""); strings.TrimSpace(d.body) != "[]" {
		t.Errorf("another scope's decisions are %s", d.body)
	}
	if trace := w.call(acme, "GET", "/api/v1/traces/none", ""); strings.TrimSpace(trace.body) != "[]" {
		t.Errorf("an unknown trace is %s", trace.body)
	}
}

// F28: an input is passed on as it came.
func TestNumbersKeepEveryDigit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.job("job.t.digits", `{"n": 9223372036854775807, "f": 0.1234567890123456789, "b": false, "z": null}`)
	a := w.call(acme, "POST", "/api/v1/worker/claim", `{"worker": "w1", "topics": ["job.t.digits"]}`)
	input := fmt.Sprint(a.items("jobs")[0]["input"])
	if input != "map[b:false f:0.1234567890123456789 n:9223372036854775807 z:<nil>]" {
		t.Errorf("the worker got %s", input)
	}
}

// C12: what a submit may not be.
func TestRefusedSubmits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`insert into pgmill.function (name, kind, module, listens) values ('job.t.typed', 'step', 't', '{job.t.typed}')`)
	w.exec(`insert into pgmill.topic (name, function, max_attempts, max_runtime, backoff, backoff_max, input_schema)
		values ('job.t.typed', 'job.t.typed', 3, '30 s', '1 s', '1 min', '{"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}')`)
	many := func(n int, f string) string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf(f, i)
		}
		return strings.Join(all, ",")
	}
	for _, tt := range []struct {
		name, body string
		status     int
		code       string
		detail     string // part of it; "" is not looked at
	}{
		{"no prompt", `{}`, 400, "invalid_field", "prompt is required"},
		{"an empty prompt", `{"prompt": ""}`, 400, "invalid_field", "prompt is required"},
		{"a prompt that is too long", `{"prompt": "` + strings.Repeat("é", 100_001) + `"}`, 400, "invalid_field", "prompt too long"},
		{"prompt and input", `{"prompt": "x", "input": {}}`, 400, "invalid_field", ""},
		{"an input that is no object", `{"input": [1]}`, 400, "invalid_field", "input must be"},
		{"another topic", `{"prompt": "x", "topic": "sys.job.submit"}`, 400, "invalid_field", "topic must start with job."},
		{"a malformed topic", `{"prompt": "x", "topic": "job.a b"}`, 400, "invalid_field", "topic must be words"},
		{"a topic that is too long", `{"prompt": "x", "topic": "job.` + strings.Repeat("a", 200) + `"}`, 413, "too_large", ""},
		{"negative tokens", `{"prompt": "x", "max_input_tokens": -1}`, 400, "invalid_field", "token limits must be non-negative"},
		{"a negative deadline", `{"prompt": "x", "deadline_ms": -1}`, 400, "invalid_field", "deadline_ms must be non-negative"},
		{"a negative delay", `{"prompt": "x", "delay_ms": -1}`, 400, "invalid_field", "delay_ms must be"},
		{"a huge delay", `{"prompt": "x", "delay_ms": 9223372036854775807}`, 400, "invalid_field", "delay_ms must be"},
		{"a delay beyond int64", `{"prompt": "x", "delay_ms": 92233720368547758070}`, 400, "invalid_json", "delay_ms must be a whole number"},
		{"half a delay", `{"prompt": "x", "delay_ms": 1.5}`, 400, "invalid_json", ""},
		{"no attempts", `{"prompt": "x", "max_attempts": 0}`, 400, "invalid_field", "max_attempts must be"},
		{"an actor of no type", `{"prompt": "x", "actor_type": "robot"}`, 400, "invalid_field", "actor_type must be"},
		{"too many tags", `{"prompt": "x", "tags": [` + many(51, `"t%d"`) + `]}`, 400, "invalid_field", "too many tags"},
		{"too many labels", `{"prompt": "x", "labels": {` + many(51, `"l%d": "v"`) + `}}`, 400, "invalid_field", "too many labels"},
		{"a label that is too long", `{"prompt": "x", "labels": {"l": "` + strings.Repeat("v", 257) + `"}}`, 400, "invalid_field", "labels must be"},
		{"another tenant", `{"prompt": "x", "tenant_id": "other"}`, 403, "denied", "tenant access denied"},
		{"another org", `{"prompt": "x", "org_id": "other"}`, 403, "denied", "tenant access denied"},
		{"a prompt that is a number", `{"prompt": 5}`, 400, "invalid_json", "prompt must be a text"},
		{"labels that are no texts", `{"prompt": "x", "labels": {"a": 1}}`, 400, "invalid_json", "labels must be"},
		{"half a body", `{"prompt":`, 400, "invalid_json", ""},
		{"no body", ``, 400, "invalid_json", ""},
		{"an array", `[]`, 400, "invalid_json", ""},
		{"null", `null`, 400, "invalid_json", ""},
		{"something after the end", `{"prompt": "x"} trailing`, 400, "invalid_json", ""},
		{"a name twice", `{"prompt": "x", "prompt": "y"}`, 400, "duplicate_key", ""},
		{"a name twice deep inside", `{"input": {"a": [{"b": 1, "\u0062": 2}]}}`, 400, "duplicate_key", ""},
		{"NUL", `{"input": {"a": "\u0000"}}`, 400, "invalid_json", "NUL"},
		{"NUL in a name", `{"input": {"\u0000": 1}}`, 400, "invalid_json", "NUL"},
		{"half a surrogate pair", `{"input": {"a": "\ud800"}}`, 400, "invalid_json", ""},
		{"bytes that are no UTF-8", "{\"prompt\": \"\xff\"}", 400, "invalid_json", ""},
		{"a number beyond a double", `{"input": {"a": 1e400}}`, 400, "invalid_number", ""},
		{"a number too small to keep", `{"input": {"a": 1e-99999}}`, 400, "invalid_json", ""},
		{"nested too deep", `{"input": {"a": ` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + `}}`, 400, "invalid_json", "deep"},
		{"too large", `{"prompt": "x", "context": "` + strings.Repeat("a", 2<<20) + `"}`, 413, "too_large", ""},
		{"not of the topic's schema", `{"topic": "job.t.typed", "input": {"n": "secret-canary"}}`, 422, "schema_validation_failed", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := w.call(acme, "POST", "/api/v1/jobs", tt.body)
			if a.status != tt.status || a.text("code") != tt.code || !strings.Contains(a.text("detail"), tt.detail) || a.text("error") != a.text("detail") {
				t.Errorf("answered %d %s; want %d %s %q", a.status, a.body, tt.status, tt.code, tt.detail)
			}
			if got := a.header.Get("Content-Type"); got != "application/problem+json" {
				t.Errorf("Content-Type %q", got)
			}
			if strings.Contains(a.body, "canary") {
				t.Errorf("the refusal repeats what was sent: %s", a.body)
			}
		})
	}
	faults := w.call(acme, "POST", "/api/v1/jobs", `{"topic": "job.t.typed", "input": {"n": "x"}}`).items("faults")
	if len(faults) != 1 || faults[0]["path"] != "/n" {
		t.Errorf("faults = %v; want one at /n", faults)
	}
	for body, want := range map[string]string{
		`{"prompt": "x", "delay_ms": -1}`: "[map[message:must be a whole number of milliseconds, 0 to ten years path:/delay_ms]]",
		`{"prompt": 5}`:                   "[map[message:must be a text path:/prompt]]",
		`{}`:                              "[map[message:is required path:/prompt]]",
		`{"prompt": "x", "topic": "job.` + strings.Repeat("a", 200) + `"}`: "[map[message:is longer than 128 bytes path:/topic]]",
		`{"prompt": "x", "prompt": "y"}`:                                   "[]",
	} {
		if got := fmt.Sprint(w.call(acme, "POST", "/api/v1/jobs", body).items("faults")); got != want {
			t.Errorf("%.40s: faults = %s, want %s", body, got, want)
		}
	}
	if n := ask[int](w, `select count(*)::int from pgmill.job`); n != 0 {
		t.Errorf("%d jobs were made", n)
	}
	w.want(w.call(acme, "POST", "/api/v1/jobs", `{"topic": "job.t.typed", "input": {"n": 9223372036854775807}}`), 200, "")
	if w.log.Len() > 0 {
		t.Errorf("the log says %s", w.log)
	}
}

// C14: a key by body, header or query; another job with it is a conflict.
func TestIdempotencyKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.want(w.call(acme, "POST", "/api/v1/jobs", `{"prompt": "x", "idempotency_key": "k1"}`), 200, "")
	for _, again := range []answer{
		w.call(acme, "POST", "/api/v1/jobs", `{"prompt": "x", "idempotency_key": "k1"}`),
		w.call(acme, "POST", "/api/v1/jobs", `{"prompt": "x"}`, "Idempotency-Key", "k1"),
		w.call(acme, "POST", "/api/v1/jobs", `{"prompt": "x"}`, "X-Idempotency-Key", "k1"),
		w.call(acme, "POST", "/api/v1/jobs?idempotency_key=k1", `{"prompt": "x"}`),
	} {
		if again.body != first.body {
			t.Errorf("a repeat answered %d %s; want %s", again.status, again.body, first.body)
		}
	}
	w.want(w.call(acme, "POST", "/api/v1/jobs", `{"prompt": "y"}`, "Idempotency-Key", "k1"), 409, "idempotency_conflict")
	w.want(w.call(acme, "POST", "/api/v1/jobs", `{"prompt": "x", "idempotency_key": "k2"}`, "Idempotency-Key", "k1"), 400, "invalid_field")
	if a := w.want(w.call(other, "POST", "/api/v1/jobs", `{"prompt": "x"}`, "Idempotency-Key", "k1"), 200, ""); a.text("job_id") == first.text("job_id") {
		t.Error("a key of one scope counts in another")
	}
}

// F71: twenty submits with one key at once make one job and all answer it; a session that
// ends between the key and the job leaves neither, and the next try makes one; a key that
// is too long is refused by name.
func TestIdempotencyKeysAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const body = `{"topic": "job.t.once", "input": {}}`
	answers := make(chan answer)
	for range 20 {
		go func() { answers <- w.call(acme, "POST", "/api/v1/jobs", body, "Idempotency-Key", "k1") }()
	}
	all := map[string]int{}
	for range 20 {
		a := <-answers
		all[fmt.Sprint(a.status, " ", a.body)]++
	}
	if len(all) != 1 || ask[int](w, `select count(*)::int from pgmill.job`) != 1 {
		t.Errorf("%d jobs, answers: %v; want one and one", ask[int](w, `select count(*)::int from pgmill.job`), all)
	}

	w.exec(`create function die() returns trigger language plpgsql as $$ begin perform pg_terminate_backend(pg_backend_pid()); return new; end $$;
		create trigger die before insert on pgmill.job for each row execute function die()`)
	if a := w.call(acme, "POST", "/api/v1/jobs", body, "Idempotency-Key", "k2"); a.status < 500 {
		t.Errorf("its session ended and it answered %d %s", a.status, a.body)
	}
	if got := ask[string](w, `select (select count(*) from pgmill.job_key where key = 'k2') || ' keys, ' || (select count(*) from pgmill.job) || ' jobs'`); got != "0 keys, 1 jobs" {
		t.Errorf("that left %s; want 0 keys, 1 jobs", got)
	}
	w.exec(`drop trigger die on pgmill.job`)
	again := w.want(w.call(acme, "POST", "/api/v1/jobs", body, "Idempotency-Key", "k2"), 200, "")
	if a := w.call(acme, "POST", "/api/v1/jobs", body, "Idempotency-Key", "k2"); a.body != again.body || ask[int](w, `select count(*)::int from pgmill.job`) != 2 {
		t.Errorf("after that it answered %s and %s", again.body, a.body)
	}

	a := w.want(w.call(acme, "POST", "/api/v1/jobs", body, "Idempotency-Key", strings.Repeat("k", 300)), 400, "invalid_field")
	if !strings.Contains(a.body, "idempotency_key must be 1 to 200 bytes") {
		t.Errorf("a key of 300 bytes is answered %s", a.body)
	}
}

// C16: pages by key. Equal times lose nothing, filters do not shorten pages.
func TestEachJobIsOnOnePage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`insert into pgmill.job (id, scope, topic, state, trace_id, updated_at, created_at)
		select 'j' || lpad(g::text, 5, '0'), case when g % 2 = 0 then 'org:acme' else 'org:other' end, case when g % 30 = 0 then 'job.t.rare' else 'job.t.often' end,
		       case when g % 3 = 0 then 'FAILED' else 'SUCCEEDED' end, 't', '2026-01-01', '2026-01-01'
		  from generate_series(1, 6000) g`)
	w.exec(`analyze pgmill.job`)
	for query, want := range map[string]int{
		"topic=job.t.rare&limit=7": 200, "state=failed&limit=500": 1000, "limit=900": 3000, "tenant=acme&topic=job.t.rare&state=FAILED": 200,
		"trace_id=t&state=succeeded&limit=499": 2000, "updated_after=1767225600": 0, "updated_before=1767225600001": 3000, "state=WHAT": 0,
	} {
		seen, pages := map[any]bool{}, 0
		for cursor := ""; ; pages++ {
			a := w.want(w.call(acme, "GET", "/api/v1/jobs?"+query+cursor, ""), 200, "")
			for _, i := range a.items("items") {
				if seen[i["id"]] || i["tenant"] != "acme" {
					t.Errorf("%s: %v comes twice or is another's", query, i)
				}
				seen[i["id"]] = true
			}
			next := a.text("next_cursor")
			if next == "" || pages > 400 {
				break
			}
			cursor = "&cursor=" + next
		}
		if len(seen) != want {
			t.Errorf("%s: %d jobs on %d pages; want %d", query, len(seen), pages+1, want)
		}
	}
	w.want(w.call(acme, "GET", "/api/v1/jobs?updated_after=x", ""), 400, "invalid_field")
	w.want(w.call(acme, "GET", "/api/v1/jobs?tenant=other", ""), 403, "denied")
	w.want(w.call(root, "GET", "/api/v1/jobs?tenant=other", ""), 200, "")
}

// A cursor that nobody was given is refused before it is a time that Postgres has not.
func TestForgedCursors(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	encode := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	for _, path := range []string{"/api/v1/jobs", "/api/v1/dlq", "/api/v1/dlq/page"} {
		for cursor, want := range map[string]int{
			"abc":                                   400,
			"%00":                                   400,
			encode(""):                              200, // as if there were none
			encode("1767225600000000"):              400,
			encode("x j1"):                          400,
			encode("-1 j1"):                         400,
			encode("1.5 j1"):                        400,
			encode("9223372036854775807 j1"):        400,
			encode("9223372036854775808 j1"):        400,
			encode("253402300800000000 j1"):         400,
			encode("253402300799999999 j1"):         200,
			encode("0 "):                            200,
			encode("0 '; select 1/0 --"):            200,
			encode("0 a\x00b"):                      400,
			encode("0 \xff"):                        200,
			encode("0 " + strings.Repeat("j", 201)): 400,
			encode("0 ") + "=":                      400,
			"%F0%9F%98%80":                          400,
		} {
			if a := w.call(acme, "GET", path+"?cursor="+cursor, ""); a.status != want {
				t.Errorf("%s?cursor=%s answered %d %s; want %d", path, cursor, a.status, a.body, want)
			}
		}
	}
}

// C20: cancel, again, too late, and of what there is not.
func TestCancel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.job("job.t.c", `{}`)
	for range 2 {
		a := w.want(w.call(acme, "POST", "/api/v1/jobs/"+id+"/cancel", ""), 200, "")
		if a.text("state") != "CANCELLED" || a.text("id") != id || a.text("reason") != "" {
			t.Errorf("answered %s", a.body)
		}
	}
	if by := ask[string](w, `select actor from mill.audit where action = 'cancel' limit 1`); by != "key:acme" {
		t.Errorf("the audit has %q; want the key's name", by)
	}
	id = w.job("job.t.c", `{}`)
	_, token := w.claimed("job.t.c")
	w.want(w.call(acme, "POST", "/api/v1/worker/complete", fmt.Sprintf(`{"id": %q, "token": %q}`, id, token)), 200, "")
	if a := w.call(acme, "POST", "/api/v1/jobs/"+id+"/cancel", ""); a.text("reason") != "job already terminal" || a.text("state") != "SUCCEEDED" {
		t.Errorf("answered %s", a.body)
	}
	w.want(w.call(acme, "POST", "/api/v1/jobs/no-such-job/cancel", `{"reason": "x.y"}`), 404, "not_found")
	w.want(w.call(acme, "POST", "/api/v1/jobs/"+id+"/cancel", `{"reason": "Not A Code"}`), 400, "invalid_field")
	w.want(w.call(acme, "GET", "/api/v1/jobs/no-such-job", ""), 404, "not_found")
}

// The scope of a key is a wall: to others a job is not there.
func TestAnotherScopesJobIsNotThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.job("job.t.mine", `{"a": 1}`)
	trace := ask[string](w, `select trace_id from pgmill.job where id = $1`, id)
	w.want(w.call(other, "GET", "/api/v1/jobs/"+id, ""), 404, "not_found")
	w.want(w.call(other, "POST", "/api/v1/jobs/"+id+"/cancel", ""), 404, "not_found")
	for _, path := range []string{"/api/v1/jobs", "/api/v1/traces/" + trace, "/api/v1/jobs?trace_id=" + trace} {
		if a := w.call(other, "GET", path, ""); strings.Contains(a.body, id) {
			t.Errorf("%s shows it: %s", path, a.body)
		}
	}
	if a := w.call(other, "POST", "/api/v1/worker/claim", `{"worker": "w2", "topics": ["job.t.mine"]}`); len(a.items("jobs")) != 0 {
		t.Errorf("another scope's worker got it: %s", a.body)
	}
	_, token := w.claimed("job.t.mine")
	body := fmt.Sprintf(`{"id": %q, "token": %q}`, id, token)
	for _, verb := range []string{"complete", "release"} {
		w.want(w.call(other, "POST", "/api/v1/worker/"+verb, body), 404, "not_found")
	}
	w.want(w.call(other, "POST", "/api/v1/worker/progress", fmt.Sprintf(`{"id": %q, "token": %q, "percent": 5}`, id, token)), 404, "not_found")
	w.want(w.call(other, "POST", "/api/v1/worker/fail", fmt.Sprintf(`{"id": %q, "token": %q, "reason": "a.b", "retry": false}`, id, token)), 404, "not_found")
	w.want(w.call(acme, "POST", "/api/v1/worker/fail", fmt.Sprintf(`{"id": %q, "token": %q, "reason": "a.b", "retry": false}`, id, token)), 200, "")
	if a := w.call(other, "GET", "/api/v1/dlq", ""); strings.TrimSpace(a.body) != "[]" {
		t.Errorf("its dead letter shows: %s", a.body)
	}
	w.want(w.call(other, "POST", "/api/v1/dlq/"+id+"/retry", ""), 404, "not_found")
	w.want(w.call(other, "DELETE", "/api/v1/dlq/"+id, ""), 204, "")
	w.want(w.call(other, "POST", "/api/v1/dlq/delete", `{"all": true}`), 200, "")
	w.want(w.call(root, "GET", "/api/v1/jobs/"+id, ""), 200, "")
	if a := w.call(root, "GET", "/api/v1/dlq", ""); !strings.Contains(a.body, id) {
		t.Errorf("root sees %s", a.body)
	}
	// The setting alone decides: the role without it sees nothing.
	w.exec(`create function as_api(scope text) returns bigint language plpgsql as $$
		begin perform set_config('role', 'pgmill_api', true), set_config('pgmill.scope', scope, true); return (select count(*) from pgmill.list_jobs('{}', 10)); end $$`)
	for scope, want := range map[string]int64{"org:acme": 1, "*": 1, "org:other": 0, "": 0} {
		if got := ask[int64](w, `select as_api($1)`, scope); got != want {
			t.Errorf("with the scope %q the API's role sees %d jobs; want %d", scope, got, want)
		}
	}
}

// The record of a job that failed says so as clients of the format know it.
func TestTheRecordOfAFailedJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.job("job.t.f", `{}`)
	id, token := w.claimed("job.t.f")
	w.want(w.call(acme, "POST", "/api/v1/worker/progress", fmt.Sprintf(`{"id": %q, "token": %q, "percent": 40, "message": "half"}`, id, token)), 200, "")
	if a := w.call(acme, "GET", "/api/v1/jobs/"+id, ""); a.text("state") != "RUNNING" || a.text("worker") != "w1" || fmt.Sprint(a.object["attempts"]) != "1" {
		t.Errorf("while it runs it is %s", a.body)
	}
	if a := w.call(acme, "GET", "/api/v1/jobs?state=running", ""); len(a.items("items")) != 1 {
		t.Errorf("the running ones are %s", a.body)
	}
	w.want(w.call(acme, "POST", "/api/v1/worker/fail", fmt.Sprintf(`{"id": %q, "token": %q, "reason": "stock.empty", "retry": false}`, id, token)), 200, "")
	a := w.call(acme, "GET", "/api/v1/jobs/"+id, "")
	result, _ := json.Marshal(a.object["result"])
	if a.text("state") != "FAILED" || a.text("error_code") != "stock.empty" || a.text("error_status") != "JOB_STATUS_FAILED" || a.text("last_state") != "FAILED" ||
		!strings.Contains(string(result), `"error":{"message":"stock.empty"}`) {
		t.Errorf("the record is %s", a.body)
	}
	if a := w.call(acme, http.MethodHead, "/api/v1/jobs/"+id, ""); a.status != 200 || a.body != "" {
		t.Errorf("HEAD answered %d %q", a.status, a.body)
	}
}

// C18, C152: an output above 256 KiB is not in the job's record but behind a route of its
// own, which is closed to other scopes like the job itself.
func TestLargeOutput(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	small, _ := w.done("job.a.small", `{"a":1}`)
	long := `{"text": "` + strings.Repeat("x", 700_000) + `"}`
	large, token := w.done("job.a.large", long)
	for _, tt := range []struct {
		name, key, id, body string
		status              int
	}{
		{"a small one", acme, small, `{"a": 1}`, 200},
		{"a large one", acme, large, long, 200},
		{"by whoever sees all", root, large, long, 200},
		{"another scope's", other, large, "", 404},
		{"of nothing", acme, "x", "", 404},
		{"by a worker", works, large, "", 403},
		{"of one that waits", acme, w.job("job.a.none", `{}`), "null", 200},
	} {
		a := w.call(tt.key, "GET", "/api/v1/jobs/"+tt.id+"/output", "")
		if a.status != tt.status || tt.status == 200 && a.body != tt.body {
			t.Errorf("%s: %d with %d bytes, want %d with %d", tt.name, a.status, len(a.body), tt.status, len(tt.body))
		}
	}
	d := w.want(w.call(acme, "GET", "/api/v1/jobs/"+large, ""), 200, "")
	if got := fmt.Sprintln(d.object["output"], d.object["result"], d.object["output_bytes"], d.text("result_ptr") == d.text("output_ptr"), strings.HasPrefix(d.text("output_ptr"), "ptr://res/"), len(d.text("output_sha256"))); got != "<nil> <nil> 700012 true true 64\n" {
		t.Errorf("the record says %s", got)
	}
	w.want(w.call(acme, "POST", "/api/v1/worker/complete", `{"id": "`+large+`", "token": "`+token+`", "output": `+long+`}`), 409, "lease_lost")
	w.want(w.call(acme, "POST", "/api/v1/worker/complete", `{"id": "`+large+`", "token": "`+token+`", "output": "`+strings.Repeat("x", 2<<20)+`"}`), 413, "too_large")
}

// done is a job that a worker of acme has done with this output.
func (w world) done(topic, output string) (id, token string) {
	w.Helper()
	w.job(topic, `{}`)
	id, token = w.claimed(topic)
	w.want(w.call(acme, "POST", "/api/v1/worker/complete", `{"id": "`+id+`", "token": "`+token+`", "output": `+output+`}`), 200, "")
	return id, token
}

// The answer says what a submit made: a job, nothing beside the one that is in the way, or
// no more than there was. Its body stays that of the wire format.
func TestASubmitSaysWhatBecameOfIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := ""
	for _, tt := range []struct{ body, want string }{
		{`{"prompt": "x"}`, "accepted "},
		{`{"prompt": "x", "unique_key": "u"}`, "accepted "},
		{`{"prompt": "y", "unique_key": "u"}`, "rejected unique_key"},
		{`{"prompt": "y", "unique_key": "u", "debounce_ms": 5000}`, "merged unique_key"},
		{`{"prompt": "x", "idempotency_key": "k"}`, "accepted "},
		{`{"prompt": "x", "idempotency_key": "k"}`, "merged idempotency_key"},
	} {
		a := w.want(w.call(acme, "POST", "/api/v1/jobs", tt.body), 200, "")
		if got := a.header.Get("X-Outcome") + " " + a.header.Get("X-Reason"); got != tt.want || len(a.object) != 2 {
			t.Errorf("%s is answered %q and %s, want %q", tt.body, got, a.body, tt.want)
		}
		if made := strings.HasPrefix(tt.want, "accepted"); made == (a.text("job_id") == first) {
			t.Errorf("%s is answered the job %s, the one before was %s", tt.body, a.text("job_id"), first)
		}
		first = a.text("job_id")
	}
}

// C32, C35: labels that ask for a worker or a place do; the principal may come by header,
// and acts unless another does.
func TestLabelsThatAsk(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, tt := range []struct{ body, header, want string }{
		{`"labels": {"preferred_worker_id": "w9", "env": "p"}`, "", `{"worker": "w9"}`},
		{`"labels": {"preferred_worker_id": "w9"}, "preferred_worker": "w1"`, "", `{"worker": "w1"}`},
		{`"labels": {"place.zone": "a"}, "placement": {"disk": "ssd"}`, "", `{"placement": {"disk": "ssd", "zone": "a"}}`},
		{`"labels": {"dry_run": "true", "retry": "1", "zone": "a"}`, "", ``},
		{`"actor_type": "human"`, "ann", ` principal ann actor ann`},
		{`"principal_id": "bob", "actor_id": "eve"`, "ann", ` principal bob actor eve`},
	} {
		id := w.want(w.call(acme, "POST", "/api/v1/jobs", `{"prompt": "x", `+tt.body+`}`, "X-Principal-Id", tt.header), 200, "").text("job_id")
		got := ask[string](w, `select demand || coalesce(' principal ' || (meta ->> 'principal_id'), '') || coalesce(' actor ' || (meta ->> 'actor_id'), '') from pgmill.job where id = $1`, id)
		if got != tt.want {
			t.Errorf("%s by %q asks %q, want %q", tt.body, tt.header, got, tt.want)
		}
	}
}
