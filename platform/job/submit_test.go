package job_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/platformtest"
)

// C12, C46: what is refused, by which code, and that the message names the field and
// never what stood in it; nothing is written.
func TestSubmitRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	big := `{"a":"` + strings.Repeat("x", 2<<20) + `"}`
	for _, tt := range []struct{ name, topic, input, options, code, says string }{
		{"a topic without job.", "demo.echo", `{}`, `{}`, "MI001", "topic"},
		{"job alone", "job", `{}`, `{}`, "MI001", "topic"},
		{"a topic with a space", "job.C4NARY x", `{}`, `{}`, "MI001", "topic"},
		{"a topic that is too long", "job." + strings.Repeat("x", 125), `{}`, `{}`, "MI002", "128"},
		{"an input that is no object", "job.a", `[1]`, `{}`, "MI001", "input"},
		{"an input that is too large", "job.a", big, `{}`, "MI002", "2 MiB"},
		{"options that are no object", "job.a", `{}`, `[]`, "MI001", "options"},
		{"an unknown option", "job.a", `{}`, `{"pirority":"batch"}`, "MI001", "pirority"},
		{"the topic again", "job.a", `{}`, `{"topic":"job.b"}`, "MI001", "topic"},
		{"an id of one's own", "job.a", `{}`, `{"job_id":"C4NARY"}`, "MI001", "job_id"},
		{"a priority that is none", "job.a", `{}`, `{"priority":"C4NARY"}`, "MI001", "priority"},
		{"a negative delay", "job.a", `{}`, `{"delay_ms":-1}`, "MI001", "delay_ms"},
		{"a huge delay", "job.a", `{}`, `{"delay_ms":1e30}`, "MI001", "delay_ms"},
		{"a delay that is no number", "job.a", `{}`, `{"delay_ms":"C4NARY"}`, "MI001", "delay_ms"},
		{"half a millisecond", "job.a", `{}`, `{"deadline_ms":0.5}`, "MI001", "deadline_ms"},
		{"a time that is none", "job.a", `{}`, `{"run_at":"tomorrow"}`, "MI001", "run_at"},
		{"an offset that there is not", "job.a", `{}`, `{"run_at":"2026-01-01T00:00:00+99:99"}`, "MI001", "run_at"},
		{"one without a colon", "job.a", `{}`, `{"run_at":"2026-01-01T00:00:00-1660"}`, "MI001", "run_at"},
		{"the 31st of February", "job.a", `{}`, `{"run_at":"2026-02-31T00:00:00Z"}`, "MI001", "run_at"},
		{"half an attempt", "job.a", `{}`, `{"max_attempts":3.5}`, "MI001", "max_attempts"},
		{"half a cost", "job.a", `{}`, `{"cost":3.5}`, "MI001", "cost"},
		{"half a millisecond of delay", "job.a", `{}`, `{"delay_ms":3.5}`, "MI001", "delay_ms"},
		{"of running", "job.a", `{}`, `{"max_runtime_ms":3.5}`, "MI001", "max_runtime_ms"},
		{"of waiting", "job.a", `{}`, `{"max_queue_wait_ms":3.5}`, "MI001", "max_queue_wait_ms"},
		{"of debounce", "job.a", `{}`, `{"debounce_ms":3.5,"unique_key":"k"}`, "MI001", "debounce_ms"},
		{"no attempts", "job.a", `{}`, `{"max_attempts":0}`, "MI001", "max_attempts"},
		{"a cost above a thousand", "job.a", `{}`, `{"cost":1001}`, "MI001", "cost"},
		{"an empty key", "job.a", `{}`, `{"key":""}`, "MI001", "key"},
		{"a key with a control character", "job.a", `{}`, `{"unique_key":"C4NARY\n"}`, "MI001", "unique_key"},
		{"debounce without a key", "job.a", `{}`, `{"debounce_ms":5}`, "MI001", "unique_key"},
		{"a scope that is none", "job.a", `{}`, `{"scope":"C4NARY"}`, "MI001", "scope"},
		{"51 labels", "job.a", `{}`, `{"labels":` + pairs(51) + `}`, "MI001", "labels"},
		{"a label that is no text", "job.a", `{}`, `{"labels":{"a":1}}`, "MI001", "labels"},
		{"requires that is no array", "job.a", `{}`, `{"requires":"gpu"}`, "MI001", "requires"},
		{"a trace id with a space", "job.a", `{}`, `{"trace_id":"a b"}`, "MI001", "trace_id"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := w.pool.Exec(t.Context(), `select mill.submit_job($1, $2::text::jsonb, $3::text::jsonb)`, tt.topic, tt.input, tt.options)
			var pe *pgconn.PgError
			if !errors.As(err, &pe) || pe.Code != tt.code || !strings.Contains(pe.Message, tt.says) {
				t.Errorf("%v; want %s that says %q", err, tt.code, tt.says)
			}
			if pe != nil && strings.Contains(pe.Message+pe.Detail+pe.Hint, "C4NARY") {
				t.Errorf("the refusal shows what it refuses: %s", pe.Message)
			}
		})
	}
	if n := ask[int64](w, `select count(*) from pgmill.job`); n != 0 {
		t.Errorf("%d jobs are there", n)
	}
}

func pairs(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`"l%d":"v"`, i))
	}
	return "{" + strings.Join(all, ",") + "}"
}

// Enqueue tells a caller which kind of refusal it is, and a batch is all or nothing.
func TestEnqueueIsAllOrNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, tt := range []struct {
		name string
		job  platform.NewJob
		want error
	}{
		{"malformed", platform.NewJob{Topic: "nojob"}, platform.ErrBadJob},
		{"too large", platform.NewJob{Topic: "job.a", Input: map[string]string{"a": strings.Repeat("x", 2<<20)}}, platform.ErrSize},
		{"F27: a NUL", platform.NewJob{Topic: "job.a", Input: map[string]string{"a": "\x00"}}, platform.ErrBadJob},
		{"no JSON", platform.NewJob{Topic: "job.a", Input: func() {}}, platform.ErrBadJob},
	} {
		err := pgx.BeginFunc(t.Context(), w.pool, func(tx pgx.Tx) error {
			_, err := platform.Enqueue(t.Context(), tx, platform.NewJob{Topic: "job.a"}, tt.job)
			return err
		})
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
	if n := ask[int64](w, `select count(*) from pgmill.job`); n != 0 {
		t.Errorf("%d jobs are there", n)
	}
	many := make([]platform.NewJob, 10_000)
	for i := range many {
		many[i] = platform.NewJob{Topic: "job.a", Scope: fmt.Sprintf("org:%d", i%7)}
	}
	err := pgx.BeginFunc(t.Context(), w.pool, func(tx pgx.Tx) error {
		got, err := platform.Enqueue(t.Context(), tx, many...)
		if err == nil && (len(got) != len(many) || got[0].Outcome != "accepted" || got[0].Job == got[1].Job) {
			t.Errorf("answered %d, the first %+v", len(got), got[0])
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := ask[string](w, `select count(*) || ' ' || count(distinct scope) from pgmill.job_waiting`); got != "10000 7" {
		t.Errorf("jobs and scopes that wait: %s", got)
	}
}

// C13: a submit is there if and only if its transaction commits.
func TestSubmitIsPartOfItsTransaction(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tx, err := w.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := platform.Enqueue(t.Context(), tx, platform.NewJob{Topic: "job.a", IdempotencyKey: "k", UniqueKey: "u"}); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := ask[string](w, `select concat_ws(' ', (select count(*) from pgmill.job), (select count(*) from pgmill.job_waiting), (select count(*) from pgmill.job_key), (select count(*) from pgmill.job_unique))`); got != "0 0 0 0" {
		t.Errorf("left after the rollback: %s", got)
	}
}

// C14, F71: of a hundred submits with one key at once one makes the job and all answer
// it; another body is refused, another scope is another key.
func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var group sync.WaitGroup
	var mu sync.Mutex
	ids := map[string]int{}
	for range 100 {
		group.Go(func() {
			var id string
			err := w.pool.QueryRow(context.WithoutCancel(t.Context()), `select mill.submit_job('job.a', '{"n":1}', '{"idempotency_key":"k"}')`).Scan(&id)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			ids[id]++
		})
	}
	group.Wait()
	if len(ids) != 1 {
		t.Errorf("%d jobs answered", len(ids))
	}
	err := pgx.BeginFunc(t.Context(), w.pool, func(tx pgx.Tx) error {
		_, err := platform.Enqueue(t.Context(), tx, platform.NewJob{Topic: "job.a", IdempotencyKey: "k"})
		return err
	})
	if !errors.Is(err, platform.ErrKeyReused) {
		t.Errorf("another body: %v", err)
	}
	other := w.submit("job.a", `{"n":2}`, `{"idempotency_key":"k","scope":"org:b"}`)
	if ids[other] != 0 {
		t.Error("another scope answers this one's job")
	}
	w.exec(`update pgmill.job_key set at = at - interval '8 days'`)
	if later := w.submit("job.a", `{"n":3}`, `{"idempotency_key":"k"}`); ids[later] != 0 {
		t.Error("after seven days it still answers the first job")
	}
}

// C13: a session that ends after any of a submit's writes leaves nothing of it, and the same
// submit makes the job afterwards.
func TestSubmitIsWholeOrNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tables := []string{"job_key", "job_unique", "lane", "job", "job_waiting"}
	w.exec(`create function die() returns trigger language plpgsql as $$ begin perform pg_terminate_backend(pg_backend_pid()); return null; end $$`)
	rows := `select concat_ws(' '`
	for _, table := range tables {
		rows += `, (select count(*) from pgmill.` + table + `)`
	}
	rows += `)`
	const submit = `select mill.submit_job('job.whole', '{}', '{"idempotency_key": "k", "unique_key": "u"}')`
	for _, table := range tables {
		w.exec(`create trigger die after insert on pgmill.` + table + ` for each row execute function die()`)
		if _, err := w.pool.Exec(t.Context(), submit); err == nil {
			t.Errorf("%s is not written", table)
		}
		if got := ask[string](w, rows); got != "0 0 0 0 0" {
			t.Errorf("ended after %s it left %s rows of %v", table, got, tables)
		}
		w.exec(`drop trigger die on pgmill.` + table)
	}
	w.exec(submit)
	w.exec(submit)
	if got := ask[string](w, rows); got != "1 1 1 1 1" {
		t.Errorf("in the end there are %s rows of %v; want one each", got, tables)
	}
}

// A unique key lets one job in until it has ended; a debounced one waits for the last
// submit and takes its input.
func TestUniqueAndDebounce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	put := func(j platform.NewJob) platform.Submitted {
		t.Helper()
		var got []platform.Submitted
		err := pgx.BeginFunc(t.Context(), w.pool, func(tx pgx.Tx) (err error) {
			got, err = platform.Enqueue(t.Context(), tx, j)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return got[0]
	}
	first := put(platform.NewJob{Topic: "job.u", UniqueKey: "k"})
	second := put(platform.NewJob{Topic: "job.u", UniqueKey: "k"})
	if second.Job != first.Job || second.Outcome != "rejected" || second.Reason != "unique_key" {
		t.Errorf("the second: %+v, the first is %s", second, first.Job)
	}
	if other := put(platform.NewJob{Topic: "job.v", UniqueKey: "k"}); other.Outcome != "accepted" {
		t.Errorf("another topic: %+v", other)
	}
	w.host(work("job.u", func(context.Context, *platform.Attempt) error { return nil }))
	w.becomes(first.Job, "SUCCEEDED")
	if third := put(platform.NewJob{Topic: "job.u", UniqueKey: "k"}); third.Outcome != "accepted" || third.Job == first.Job {
		t.Errorf("once the first has ended: %+v", third)
	}

	a := put(platform.NewJob{Topic: "job.d", UniqueKey: "k", Debounce: time.Hour, Input: map[string]int{"n": 1}})
	b := put(platform.NewJob{Topic: "job.d", UniqueKey: "k", Debounce: 2 * time.Hour, Input: map[string]int{"n": 2}})
	if b.Job != a.Job || b.Outcome != "merged" {
		t.Errorf("debounced: %+v, the first is %s", b, a.Job)
	}
	if got := ask[string](w, `select j.input::text || ' ' || (w.due_at > now() + interval '110 min') from pgmill.job j join pgmill.job_waiting w on w.job = j.id where j.id = $1`, a.Job); got != `{"n": 2} true` {
		t.Errorf("input, and whether it waits for the last submit: %s", got)
	}
	platformtest.Invariants(t, w.pool)
}

// Programs without integers write whole numbers with a point.
func TestWholeNumbersMayHaveAPoint(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.submit("job.a", `{}`, `{"cost":3.0,"max_attempts":4.00,"delay_ms":3e3,"deadline_ms":5000.0,"max_runtime_ms":6000.0,"max_queue_wait_ms":7000.0,"debounce_ms":3000.0,"unique_key":"k"}`)
	const kept = `select concat_ws(' ', j.cost, j.max_attempts, j.run_at - j.created_at, j.deadline_at - j.created_at, j.max_runtime, j.max_queue_wait) from pgmill.job j where j.id = $1`
	if got, want := ask[string](w, kept, id), "3 4 00:00:03 00:00:05 00:00:06 00:00:07"; got != want {
		t.Errorf("kept %s, want %s", got, want)
	}
}

// A debounce moves a job on, but never past its deadline.
func TestDebounceKeepsTheDeadline(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.submit("job.d", `{}`, `{"unique_key":"k","debounce_ms":3600000,"deadline_ms":7200000}`)
	for _, ms := range []string{"3600000", "10800000"} {
		w.submit("job.d", `{}`, `{"unique_key":"k","debounce_ms":`+ms+`}`)
		const kept = `select (w.due_at > now() + ($2::int - 60000) * interval '1 ms') || ' ' || (w.expires_at = j.deadline_at) from pgmill.job_waiting w join pgmill.job j on j.id = w.job where j.id = $1`
		if got := ask[string](w, kept, id, ms); got != "true true" {
			t.Errorf("after a debounce of %s ms: whether it waits for that, and until its deadline: %s", ms, got)
		}
	}
}

// Many jobs in one call are what they would be one by one, in the same order: those are
// two statements (put_job, put_jobs).
func TestManyJobsAreAsEachAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`select mill.set_timeouts('{"topics": {"job.slow": {"max_queue_wait_seconds": 7200}}}')`)
	const items = `[{"topic": "job.a"}, {"topic": "job.slow", "input": {"n": 9007199254740993}}, {"topic": "job.a", "priority": "critical", "scope": "org:a", "cost": 3},
		{"topic": "job.a", "key": "k", "labels": {"l": "v"}, "meta": {"team_id": "t"}, "max_attempts": 2, "trace_id": "t1", "run_id": "r", "step_id": "s"},
		{"topic": "job.a", "delay_ms": 60000}, {"topic": "job.a", "run_at": "2100-01-01T00:00:00Z", "deadline_ms": 5000}, {"topic": "job.b", "priority": "batch"},
		{"topic": "job.a", "requires": ["gpu", "GPU "], "placement": {"zone": "a"}, "preferred_pool": "p", "preferred_worker": "w"},
		{"topic": "job.a", "labels": null, "max_runtime_ms": 1000, "max_queue_wait_ms": 0}]`
	rows := func(submit string) string {
		t.Helper()
		var all string
		err := pgx.BeginFunc(t.Context(), w.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), submit, items); err != nil {
				return err
			}
			return tx.QueryRow(t.Context(), `
				select string_agg(concat_ws(E'\n', to_jsonb(j) - '{id,created_at,updated_at,run_at,deadline_at}'::text[] || jsonb_build_object('own_trace', j.trace_id = j.id, 'trace_id', nullif(j.trace_id, j.id),
				                                     'run', j.run_at - now(), 'deadline', j.deadline_at - now()),
				                                  to_jsonb(w) - '{job,seq,since,due_at,expires_at}'::text[] || jsonb_build_object('due', w.due_at - now(), 'expires', w.expires_at - now())), E'\n' order by w.seq)
				  from pgmill.job j join pgmill.job_waiting w on w.job = j.id where j.created_at = now()`).Scan(&all)
		})
		if err != nil {
			t.Fatal(err)
		}
		return regexp.MustCompile(`"(run|due|expires)": "\d{4,} days[^"]*"`).ReplaceAllString(all, `"$1": "in 2100"`)
	}
	alone := rows(`select mill.submit_job(j ->> 'topic', coalesce(nullif(j -> 'input', 'null'), '{}'), j - '{topic,input}'::text[]) from jsonb_array_elements($1::text::jsonb) j`)
	many := rows(`select count(*) from mill.submit_jobs($1::text::jsonb)`)
	if strings.Count(alone, "\n") != 17 || alone != many {
		t.Errorf("one by one:\n%s\nin one call:\n%s", alone, many)
	}
}

// C95: a retry of a dead letter is its job again, whatever its submitter said of it, and
// what waits for it is the same.
func TestARetryIsAFullClone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.submit("job.full", `{"n": 9007199254740993, "z": null}`, `{"scope": "org:a", "priority": "critical", "max_attempts": 7, "cost": 5, "key": "k", "unique_key": "u",
		"labels": {"l": "v"}, "placement": {"zone": "a"}, "requires": ["gpu", "Ram "], "preferred_pool": "p", "preferred_worker": "w", "trace_id": "t1", "run_id": "r", "step_id": "s",
		"deadline_ms": 3600000, "max_runtime_ms": 1500, "max_queue_wait_ms": 90000, "meta": {"risk_tags": ["pii"], "capability": "db.write", "x": null}}`)
	rows := func(id string) string {
		return ask[string](w, `select jsonb_pretty(to_jsonb(j) - '{id,created_at,updated_at,deadline_at,retry_of}'::text[] || jsonb_build_object('in', j.deadline_at - j.created_at)
			|| (select to_jsonb(w) - '{job,seq,since,expires_at}'::text[] || jsonb_build_object('expires', w.expires_at - j.created_at) from pgmill.job_waiting w where w.job = j.id))
			from pgmill.job j where j.id = $1`, id)
	}
	want := rows(first)
	w.exec(`update pgmill.job_waiting set expires_at = now()`)
	w.exec(`select pgmill.expire_jobs()`)
	again := ask[string](w, `select mill.retry_dead_letter($1)`, first)
	if got := rows(again); got != want || strings.Count(want, "null") != 12 {
		t.Errorf("the clone is\n%s\nits model was\n%s", got, want)
	}
	if got := ask[string](w, `select retry_of from pgmill.job where id = $1`, again); got != first {
		t.Errorf("it is a retry of %s", got)
	}
}

// A dead letter whose unique_key a live job has is not run beside that one: it stays, and is
// retried once that one has ended.
func TestARetryPassesItsGates(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const key = `{"unique_key":"u"}`
	dead := w.submit("job.gate", `{}`, key)
	w.exec(`update pgmill.job_waiting set expires_at = now()`)
	w.exec(`select pgmill.expire_jobs()`)
	live := w.submit("job.gate", `{}`, key)
	retry := func(want string) {
		t.Helper()
		const sql = `select concat_ws(' ', case when r.job_id = $2 then 'live' when r.job_id ~ '-retry-' then 'clone' end, r.outcome, r.reason) from pgmill.retry_letter($1, null) r`
		if got := ask[string](w, sql, dead, live); got != want {
			t.Errorf("retried: %s, want %s", got, want)
		}
	}
	retry("live rejected unique_key")
	if got := ask[string](w, `select mill.retry_dead_letter($1)`, dead); got != live {
		t.Errorf("in SQL it is answered %s, want %s", got, live)
	}
	if got := ask[string](w, `select (select count(*) from pgmill.job_waiting) || ' ' || (select count(*) from mill.dead_letters where retried_as is null) || ' ' || (select count(*) from mill.audit)`); got != "1 1 0" {
		t.Errorf("what waits, letters not retried, audit: %s", got)
	}
	_ = ask[string](w, `select mill.cancel($1)`, live)
	retry("clone accepted")
	retry("clone merged")
	platformtest.Invariants(t, w.pool)
}
