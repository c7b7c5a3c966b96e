package job_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/host"
	"github.com/pgmill/pgmill/platform/job"
	"github.com/pgmill/pgmill/platform/platformtest"
)

// C20, C21, F41: whatever a job waits for or is at, cancel ends it: what waits never
// starts, what runs hears of it, a late result is noted and changes nothing.
func TestCancel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var started atomic.Int64
	heard := make(chan error, 1)
	w.host(work("job.c.run", func(ctx context.Context, _ *platform.Attempt) error {
		started.Add(1)
		<-ctx.Done()
		heard <- context.Cause(ctx)
		return nil // and says it went well
	}))
	waiting := map[string]string{
		"unknown topic": w.submit("job.c.none", `{}`, `{}`),
		"scheduled":     w.submit("job.c.run", `{}`, `{"delay_ms":3600000}`),
	}
	for name, id := range waiting {
		if got := ask[string](w, `select mill.cancel($1, 't.no')`, id); got != "CANCELLED" {
			t.Errorf("%s: %s", name, got)
		}
		if got := w.reason(id); got != "t.no" {
			t.Errorf("%s: the reason is %q", name, got)
		}
	}
	running := w.submit("job.c.run", `{}`, `{}`)
	w.becomes(running, "RUNNING")
	if got := ask[string](w, `select mill.cancel($1)`, running); got != "CANCELLED" {
		t.Error(got)
	}
	<-heard
	platformtest.WaitFor(t, w.pool, `select exists (select from pgmill.job_attempt where job = $1 and reason = 'late_result')`, running)
	w.becomes(running, "CANCELLED")
	if got := ask[string](w, `select mill.cancel($1)`, running); got != "CANCELLED" {
		t.Errorf("cancelled again: %s", got)
	}
	if n := started.Load(); n != 1 {
		t.Errorf("%d started", n)
	}
	if n := ask[int64](w, `select count(*) from mill.dead_letters`); n != 0 {
		t.Errorf("%d dead letters of cancelled jobs", n)
	}
	if _, err := w.pool.Exec(t.Context(), `select mill.cancel('nosuch')`); err == nil {
		t.Error("a job that does not exist was cancelled")
	}
}

// C40: the attempt that a cancel ends is shown as any other: its number, when it started,
// who was at it, whether a host or an outside worker.
func TestCancelKeepsTheAttempt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_ = w.rescuer()
	for _, who := range []string{"me", "w1"} {
		id := w.submit("job.c.kept", `{}`, `{"max_attempts":3}`)
		_, token := w.claimed("job.c.kept")
		w.exec(`select mill.fail_job($1, $2, 't.first')`, id, token)
		w.exec(`update pgmill.job_waiting set due_at = now() where job = $1`, id)
		w.exec(`select pgmill.promote_jobs()`)
		if who == "me" {
			w.exec(`select pgmill.admit('me', '{job.c.kept}', 1)`)
		} else {
			_, _ = w.claimed("job.c.kept")
		}
		began := ask[time.Time](w, `select started_at from mill.jobs where id = $1 and state = 'RUNNING'`, id)
		w.exec(`select mill.cancel($1)`, id)
		if got := ask[string](w, `select concat_ws(' ', state, reason, attempt, instance, started_at = $2) from mill.jobs where id = $1`, id, began); got != "CANCELLED cancelled 2 "+who+" t" {
			t.Errorf("cancelled under %s it is %s", who, got)
		}
		if got := ask[string](w, `select string_agg(concat_ws(' ', attempt, reason), ', ') from pgmill.job_attempt where job = $1`, id); got != "1 t.first" {
			t.Errorf("the earlier attempts are %s", got)
		}
		w.exec(`select mill.cancel($1)`, id) // again: nothing is lost
		if got := ask[int32](w, `select attempt from mill.jobs where id = $1`, id); got != 2 {
			t.Errorf("after another cancel the attempt is %d", got)
		}
	}
}

// A cancel makes room for the next job of its key, whether it ran or was let back into
// its lane and waits: no poll is needed.
func TestCancelFreesTheKeyAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_ = w.rescuer()
	w.declare("job.c.key", `{"per_key":1}`)
	w.put(4, "job.c.key", `{"key":"k"}`)
	w.put(1, "job.c.key", `{"key":"other"}`)
	if got := w.admits(10, "{job.c.key}"); got["install"] != 2 {
		t.Fatalf("admitted %v, want one of each key", got)
	}
	cancel := func(where string) {
		t.Helper()
		if got := ask[string](w, `select coalesce(max(mill.cancel(id)), 'none') from (select w.job as id from pgmill.job_waiting w where blocked is null union all select args ->> 'job' from pgmill.river_job where queue = 'job' and args ->> 'key' = 'k') x`); got != "CANCELLED" {
			t.Fatalf("cancel what %s: %s", where, got)
		}
	}
	cancel("runs")
	cancel("was let back")
	if got := w.admits(10, "{job.c.key}"); got["install"] != 1 {
		t.Errorf("admitted %v, want the next one", got)
	}
	cancel("runs")
	if got := w.admits(10, "{job.c.key}"); got["install"] != 1 {
		t.Errorf("admitted %v, want the last one", got)
	}
}

// And a host that sleeps hears of it.
func TestCancelWakesForTheNextOfTheKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := work("job.c.next", func(ctx context.Context, _ *platform.Attempt) error { <-ctx.Done(); return ctx.Err() })
	s.PerKey = 1
	w.hostWith(&host.Worker{Poll: time.Minute}, s)
	first, next := w.submit("job.c.next", `{}`, `{"key":"k"}`), w.submit("job.c.next", `{}`, `{"key":"k"}`)
	platformtest.WaitFor(t, w.pool, `select exists (select from pgmill.job_waiting where job = $1 and blocked is not null)`, next)
	w.exec(`select mill.cancel($1)`, first)
	w.becomes(next, "RUNNING")
}

// C38, C39: no statement takes a job out of a state that is an end, and each way of
// ending a claim that is gone is refused.
func TestEndsAreFinal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, state := range []string{"SUCCEEDED", "FAILED", "CANCELLED", "TIMEOUT", "DENIED"} {
		id := w.submit("job.e", `{}`, `{}`)
		claim, token := w.claimed("job.e")
		w.exec(`update pgmill.job set state = $2 where id = $1`, id, state) // as somebody's other statement would
		for _, how := range []string{"mill.complete_job($1, $2)", "mill.fail_job($1, $2, 't.x')", "mill.release_job($1, $2)"} {
			if _, err := w.pool.Exec(t.Context(), `select `+how, id, token); err == nil {
				t.Errorf("%s of a job that is %s is taken", how, state)
			}
		}
		w.exec(`select pgmill.end_claims(array[$1::bigint], array['failed'], array['t.x'], array[false], array[null::jsonb])`, claim)
		_ = ask[string](w, `select mill.cancel($1)`, id)
		if got := ask[string](w, `select state from pgmill.job where id = $1`, id); got != state {
			t.Errorf("%s became %s", state, got)
		}
	}
}

// claimed claims the one job of a topic as an outside worker.
func (w world) claimed(topic string) (claim int64, token string) {
	w.Helper()
	if err := w.pool.QueryRow(w.Context(), `select split_part(token, '-', 1)::bigint, token from mill.claim_jobs('w1', array[$1], 1)`, topic).Scan(&claim, &token); err != nil {
		w.Fatalf("claim a job of %s: %v", topic, err)
	}
	return claim, token
}

// A cancel that meets the settle which puts the job back: the row that waits for a job
// that has ended goes, and nobody runs it.
func TestWhatWaitsForAnEndedJobNeverStarts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_ = w.rescuer()
	id := w.submit("job.c", `{}`, `{}`)
	w.exec(`update pgmill.job set state = 'CANCELLED' where id = $1`, id)
	if got := w.admits(10, "{job.c}"); len(got) > 0 {
		t.Errorf("admitted %v", got)
	}
	if n := ask[int64](w, `select count(*) from pgmill.job_waiting`); n != 0 {
		t.Errorf("%d rows still wait", n)
	}
}

// F41: a cancel that is heard before the fetch of its claim has come back is not lost.
func TestCancelBeforeTheFetchComesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spec := platform.NewRegistry()
	if err := spec.Add(work("job.early", func(context.Context, *platform.Attempt) error { return nil })); err != nil {
		t.Fatal(err)
	}
	e := &job.Engine{Steps: platform.Of[platform.StepSpec](spec), Control: w.pool, Instance: w.rescuer()}
	e.Init()
	w.put(2, "job.early", `{}`)
	if n, err := e.Fetch(t.Context(), 1); n != 1 || err != nil {
		t.Fatalf("fetched %d, %v", n, err)
	}
	w.exec(`insert into pgmill.job_cancel (claim, job, instance) select max(id) + 1, 'x', 'me' from pgmill.river_job`)
	if err := e.Cancelled(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, err := e.Fetch(t.Context(), 1); n != 1 || err != nil {
		t.Fatalf("fetched %d, %v", n, err)
	}
	if n := e.Ended(); n != 1 {
		t.Errorf("%d of the two are cancelled, want the second", n)
	}
}

// C52: which codes without a dot may be given from outside; the others are pgmill's, and
// what is refused changes nothing.
func TestReasonsFromOutside(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.submit("job.c.reason", `{}`, `{"max_attempts":100}`)
	for _, tt := range []struct {
		reason         string
		fails, cancels bool
	}{
		{"host_lost", false, false}, {"lease_lost", false, false}, {"deadline", false, false}, {"timeout", false, false}, {"whatever", false, false},
		{"Stock.empty", false, false}, {"", false, false}, {"cancelled", false, true}, {"panic", true, false}, {"schema_validation_failed", true, false}, {"stock.empty", true, true},
	} {
		w.exec(`update pgmill.job_waiting set due_at = now() where due_at is not null`)
		w.exec(`select pgmill.promote_jobs()`)
		_, token := w.claimed("job.c.reason")
		_, failed := w.pool.Exec(t.Context(), `select mill.fail_job($1, $2, $3)`, id, token, tt.reason)
		_, cancelled := w.pool.Exec(t.Context(), `select mill.cancel('nosuch', $1)`, tt.reason)
		if pgCode(failed) != map[bool]string{true: "", false: "MI001"}[tt.fails] || pgCode(cancelled) != map[bool]string{true: "P0002", false: "MI001"}[tt.cancels] {
			t.Errorf("%q: to fail %v, to cancel %v; want it taken %v, %v", tt.reason, failed, cancelled, tt.fails, tt.cancels)
		}
		if !tt.fails {
			w.exec(`select mill.release_job($1, $2)`, id, token)
		}
	}
}

// pgCode is the SQLSTATE; "" is no error.
func pgCode(err error) string {
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		return pe.Code
	}
	return ""
}

// F41: an answer that a dying connection takes along is given again, until the host has
// said that it heard.
func TestALostAnswerIsGivenAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spec := platform.NewRegistry()
	if err := spec.Add(work("job.lost", func(context.Context, *platform.Attempt) error { return nil })); err != nil {
		t.Fatal(err)
	}
	e := &job.Engine{Steps: platform.Of[platform.StepSpec](spec), Control: w.pool, Instance: w.rescuer()}
	e.Init()
	w.put(2, "job.lost", `{}`)
	if n, err := e.Fetch(t.Context(), 2); n != 2 || err != nil {
		t.Fatalf("fetched %d, %v", n, err)
	}
	w.exec(`select mill.cancel(min(id)) from mill.jobs where state = 'RUNNING'`)
	w.exec(`select pgmill.cancelled_jobs('me', '{}')`) // whose answer never came
	for question, left := range []int64{1, 0, 0} {
		if err := e.Cancelled(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := ask[int64](w, `select count(*) from pgmill.job_cancel`); n != left || e.Ended() != 1 {
			t.Errorf("after question %d %d are cancelled here and %d still told; want 1 and %d", question+1, e.Ended(), n, left)
		}
	}
}
