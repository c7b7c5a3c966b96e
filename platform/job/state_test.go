package job_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// subject is a job whose state is known, and the claim that it has or had last.
type subject struct {
	world
	id, topic, token string
	claim            int64
}

// states are the ways into each state that is seen (C38; SCHEDULED and DISPATCHED are
// not, see doc.go).
var states = []struct {
	name string
	into func(s *subject)
}{
	{"PENDING", func(s *subject) { s.exec(`select mill.release_job($1, $2)`, s.id, s.token) }},
	{"APPROVAL_REQUIRED", func(s *subject) {
		s.exec(`select mill.release_job($1, $2)`, s.id, s.token)
		s.judged("require_approval")
	}},
	{"RUNNING", func(*subject) {}},
	{"SUCCEEDED", func(s *subject) { s.exec(`select mill.complete_job($1, $2, '{"a": 1}')`, s.id, s.token) }},
	{"FAILED", func(s *subject) { s.exec(`select mill.fail_job($1, $2, 't.no', false)`, s.id, s.token) }},
	{"CANCELLED", func(s *subject) { s.exec(`select mill.cancel($1)`, s.id) }},
	{"TIMEOUT", func(s *subject) { s.ends("failed", "deadline", true) }},
	{"DENIED", func(s *subject) {
		s.exec(`select mill.release_job($1, $2)`, s.id, s.token)
		s.judged("deny")
	}},
}

// judged lets an admission ask a policy of this verdict about the subject.
func (s *subject) judged(verdict string) {
	s.Helper()
	s.exec(`insert into public.verdict values ($1, $2)`, s.topic, verdict)
	s.exec(`select count(*) from pgmill.admit('me', array[$1], 10)`, s.topic)
	s.exec(`delete from public.verdict`)
}

// ends says of the subject's claim how it ended, as a host does.
func (s *subject) ends(outcome, reason string, final bool) {
	s.Helper()
	s.exec(`select pgmill.end_claims(array[$1::bigint], array[$2], array[$3], array[$4::boolean], array[null::jsonb])`, s.claim, outcome, reason, final)
}

// tries runs what may be refused; a refusal must be one of ours.
func (s *subject) tries(sql string, args ...any) {
	s.Helper()
	var pe *pgconn.PgError
	if _, err := s.pool.Exec(s.Context(), sql, args...); err != nil && !(errors.As(err, &pe) && (pe.Code[:2] == "MI" || pe.Code == "P0002")) {
		s.Errorf("%s: %v", sql, err)
	}
}

// happenings are what can happen to a job, and the states that follow where anything
// does; everywhere else nothing is written.
var happenings = []struct {
	name string
	does func(s *subject)
	to   string // "PENDING>RUNNING …"
}{
	{"it is admitted", func(s *subject) { s.exec(`select count(*) from pgmill.admit('me', array[$1], 10)`, s.topic) }, "PENDING>RUNNING"},
	{"it succeeds", func(s *subject) {
		s.exec(`select pgmill.end_claims(array[$1::bigint], null, null, null, array['{}'::jsonb])`, s.claim)
	}, "RUNNING>SUCCEEDED"},
	{"it succeeds among others", func(s *subject) { s.ends("succeeded", "", false) }, "RUNNING>SUCCEEDED"},
	{"its own transaction settles it", func(s *subject) { s.tries(`select pgmill.settle_job($1, '{}')`, s.claim) }, "RUNNING>SUCCEEDED"},
	{"it fails for good", func(s *subject) { s.ends("failed", "t.bad", true) }, "RUNNING>FAILED"},
	{"it fails and is tried again", func(s *subject) { s.ends("failed", "t.bad", false) }, "RUNNING>PENDING"},
	{"its last attempt takes too long", func(s *subject) { s.ends("failed", "timeout", true) }, "RUNNING>TIMEOUT"},
	{"a policy denies it", func(s *subject) { s.judged("deny") }, "PENDING>DENIED"},
	{"a policy asks for an approval", func(s *subject) { s.judged("require_approval") }, "PENDING>APPROVAL_REQUIRED"},
	{"its host gives it back", func(s *subject) { s.exec(`select count(*) from pgmill.release_claims(array[$1::bigint])`, s.claim) }, "RUNNING>PENDING"},
	{"its worker completes it", func(s *subject) { s.tries(`select mill.complete_job($1, $2)`, s.id, s.token) }, "RUNNING>SUCCEEDED"},
	{"its worker says it failed", func(s *subject) { s.tries(`select mill.fail_job($1, $2, 't.bad')`, s.id, s.token) }, "RUNNING>PENDING"},
	{"its worker says it failed for good", func(s *subject) { s.tries(`select mill.fail_job($1, $2, 't.bad', false)`, s.id, s.token) }, "RUNNING>FAILED"},
	{"its worker gives it back", func(s *subject) { s.tries(`select mill.release_job($1, $2)`, s.id, s.token) }, "RUNNING>PENDING"},
	{"it is cancelled", func(s *subject) { s.exec(`select mill.cancel($1, 't.enough')`, s.id) }, "PENDING>CANCELLED APPROVAL_REQUIRED>CANCELLED RUNNING>CANCELLED"},
	{"its holder dies and a host looks", func(s *subject) {
		s.exec(`update pgmill.job_lease set until = now() where claim = $1`, s.claim)
		s.exec(`select pgmill.sweep_jobs('me')`)
	}, "RUNNING>PENDING"},
	{"it has waited long enough", func(s *subject) {
		s.exec(`update pgmill.job_waiting set expires_at = now() where job = $1`, s.id)
		s.exec(`select pgmill.sweep_jobs('me')`)
	}, "PENDING>TIMEOUT APPROVAL_REQUIRED>TIMEOUT"},
	{"a result comes late", func(s *subject) { s.exec(`select pgmill.late_result($1, 1, 'w1')`, s.id) }, ""},
	{"its dead letter is tried again", func(s *subject) { s.tries(`select mill.retry_dead_letter($1)`, s.id) }, ""},
	{"its dead letter is deleted", func(s *subject) { s.exec(`select mill.delete_dead_letter($1)`, s.id) }, ""},
	{"it is submitted again", func(s *subject) { s.submit(s.topic, `{}`, fmt.Sprintf(`{"idempotency_key":%q}`, s.topic)) }, ""},
	{"a host looks", func(s *subject) {
		s.exec(`select pgmill.sweep_jobs('me'), pgmill.unblock(), pgmill.release_unknown_jobs('me', '{}')`)
	}, ""},
}

// The full matrix of C38 and C39: whatever happens to a job in whatever state, it
// leads where it must, and where it leads nowhere the job's row stays as it is, bit for
// bit, no attempt is counted and no claim is made.
func TestStates(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_ = w.rescuer()
	w.exec(`create table public.verdict (topic text, verdict text)`)
	w.exec(`create or replace function pgmill.decide(job pgmill.job) returns table (verdict text, reason text, policy text)
		language sql stable as $$ select coalesce((select v.verdict from public.verdict v where v.topic = job.topic), 'allow'), null::text, null::text $$`)
	for i, from := range states {
		for j, what := range happenings {
			t.Run(strings.ToLower(from.name)+", "+what.name, func(t *testing.T) {
				s := &subject{world: world{t, w.dsn, w.pool}, topic: fmt.Sprintf("job.m.s%d.h%d", i, j)}
				s.id = s.submit(s.topic, `{}`, fmt.Sprintf(`{"idempotency_key":%q}`, s.topic))
				s.claim, s.token = s.claimed(s.topic)
				from.into(s)
				if got := s.state(); got != from.name {
					t.Fatalf("it begins as %s", got)
				}
				before := s.rows()
				what.does(s)
				want := from.name
				for _, step := range strings.Fields(what.to) {
					if a, b, _ := strings.Cut(step, ">"); a == from.name {
						want = b
					}
				}
				if got := s.state(); got != want {
					t.Errorf("it became %s, want %s", got, want)
				}
				if got := s.rows(); want == from.name && got != before {
					t.Errorf("its rows were\n%s\nand are\n%s", before, got)
				}
				if dead := slices.Contains([]string{"FAILED", "TIMEOUT", "DENIED"}, want) && what.name != "its dead letter is deleted"; dead != ask[bool](s.world, `select exists (select from pgmill.dead_letter where job = $1)`, s.id) {
					t.Errorf("a dead letter: %v", !dead)
				}
			})
		}
	}
}

func (s *subject) state() string {
	s.Helper()
	return ask[string](s.world, `select state from mill.jobs where id = $1`, s.id)
}

// rows is what is stored of the job, its attempts, what waits of it and its claims. That
// a result came late, or a claim was lost, is not an attempt.
func (s *subject) rows() string {
	s.Helper()
	return ask[string](s.world, `select concat_ws(E'\n', (select j.ctid || j::text from pgmill.job j where j.id = $1),
		(select string_agg(a::text, E'\n' order by a.attempt, a.ended_at) from pgmill.job_attempt a where a.job = $1 and a.reason not in ('late_result', 'lease_lost')),
		(select w::text from pgmill.job_waiting w where w.job = $1), (select string_agg(r.id || r.state::text, ' ') from pgmill.river_job r where r.args ->> 'job' = $1))`, s.id)
}

// C39: SQL itself refuses a statement that takes a job out of an end, or lets one succeed
// that waits for an approval.
func TestNoStatementLeavesAnEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stored := []string{"PENDING", "APPROVAL_REQUIRED", "SUCCEEDED", "FAILED", "CANCELLED", "TIMEOUT", "DENIED"}
	for i, from := range stored {
		for j, to := range stored {
			w.exec(`insert into pgmill.job (id, topic, state, trace_id) values ($1, 'job.g', $2, 't')`, fmt.Sprint(i, j), from)
			_, err := w.pool.Exec(t.Context(), `update pgmill.job set state = $2 where id = $1`, fmt.Sprint(i, j), to)
			allowed := from == to || from == "PENDING" || from == "APPROVAL_REQUIRED" && to != "SUCCEEDED"
			var pe *pgconn.PgError
			if allowed != (err == nil) || err != nil && !(errors.As(err, &pe) && pe.Code == "MI409") {
				t.Errorf("%s to %s: %v; allowed: %v", from, to, err, allowed)
			}
		}
	}
	w.exec(`delete from pgmill.job`) // those that pend have no row that waits
}
