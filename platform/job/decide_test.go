package job_test

import (
	"context"
	"testing"

	"github.com/pgmill/pgmill/platform"
)

// Issue 4, C38: admission asks one decision of every job that could run. What is
// denied is a dead letter, what needs an approval waits for it and for nothing else, and
// verdict and snapshot are the job's.
func TestAdmissionAsksThePolicy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`create or replace function pgmill.decide(job pgmill.job) returns table (verdict text, reason text, policy text)
		language sql immutable parallel safe
		as $$ select case job.labels ->> 'risk' when 'high' then 'deny' when 'some' then 'require_approval' else 'allow' end,
		             case when job.labels ? 'risk' then 'too_risky' end, 'snapshot-7' $$`)
	denied := w.submit("job.p", `{}`, `{"labels":{"risk":"high"},"unique_key":"u"}`)
	asks := w.submit("job.p", `{}`, `{"labels":{"risk":"some"}}`)
	fine := w.submit("job.p", `{}`, `{}`)
	w.host(work("job.p", func(context.Context, *platform.Attempt) error { return nil }))
	w.becomes(denied, "DENIED")
	w.becomes(asks, "APPROVAL_REQUIRED")
	w.becomes(fine, "SUCCEEDED")
	for id, want := range map[string]string{denied: "deny|snapshot-7|too_risky", asks: "require_approval|snapshot-7|too_risky", fine: "allow|snapshot-7"} {
		if got := ask[string](w, `select concat_ws('|', verdict, policy, reason) from pgmill.job where id = $1`, id); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if got := ask[string](w, `select string_agg(concat_ws('|', job_id, state, reason), ' ') from mill.dead_letters`); got != denied+"|DENIED|too_risky" {
		t.Errorf("dead letters: %s", got)
	}
	if got := ask[string](w, `select string_agg(concat_ws('|', id, reason), ' ') from mill.why_not_running`); got != asks+"|approval_required" {
		t.Errorf("what waits is %s", got)
	}
	if again := w.submit("job.p", `{}`, `{"unique_key":"u"}`); again == denied {
		t.Error("the denied job still has its unique key")
	}
	if got := ask[string](w, `select mill.cancel($1)`, asks); got != "CANCELLED" {
		t.Errorf("a job that waits for its approval is %s after its cancel", got)
	}
}

// C46: a deadline ends a job that waits for its approval, too.
func TestADeadlineEndsWhatWaitsForApproval(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	me := w.rescuer()
	w.exec(`create or replace function pgmill.decide(job pgmill.job) returns table (verdict text, reason text, policy text)
		language sql immutable parallel safe as $$ select 'require_approval'::text, null::text, null::text $$`)
	ends, stays := w.submit("job.p", `{}`, `{"deadline_ms":3600000,"unique_key":"u"}`), w.submit("job.p", `{}`, `{"max_queue_wait_ms":1}`)
	if got := w.admits(10, "{job.p}"); len(got) > 0 {
		t.Fatalf("admitted %v", got)
	}
	if got := ask[int64](w, `select count(*) from mill.jobs where state = 'APPROVAL_REQUIRED'`); got != 2 {
		t.Fatalf("%d wait for an approval, want 2", got)
	}
	w.exec(`update pgmill.job set deadline_at = now() where id = $1`, ends)
	w.exec(`update pgmill.job_waiting set expires_at = now() where expires_at > now()`)
	w.exec(`select pgmill.sweep_jobs($1)`, me)
	if got := ask[string](w, `select string_agg(concat_ws('|', job_id, state, reason), ' ') from mill.dead_letters`); got != ends+"|TIMEOUT|deadline" {
		t.Errorf("dead letters: %s", got)
	}
	if got := ask[string](w, `select state from mill.jobs where id = $1`, stays); got != "APPROVAL_REQUIRED" {
		t.Errorf("the one without a deadline is %s", got)
	}
	if ask[bool](w, `select exists (select from pgmill.job_unique)`) {
		t.Error("the one that ended still has its unique key")
	}
}
