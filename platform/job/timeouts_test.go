package job_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgmill/pgmill/platform"
)

// C27, C162: a document with faults changes nothing, and each fault is told by its path.
func TestTimeoutsAreCheckedAsAWhole(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if v := ask[int32](w, `select mill.set_timeouts('{"topics":{"job.a":{"timeout_seconds":60.0,"max_queue_wait_seconds":0,"max_retries":0.0}},"workflows":{"w":{"child_timeout_seconds":5,"total_timeout_seconds":9,"max_retries":1}},
		"reconciler":{"running_timeout_seconds":9000,"dispatch_timeout_seconds":300,"scan_interval_seconds":30,"max_queue_wait_seconds":7}}')`); v != 1 {
		t.Errorf("version %d", v)
	}
	const kept = `select (select string_agg(concat_ws(' ', topic, max_runtime, max_queue_wait, max_attempts), ', ' order by topic) from pgmill.topic_timeout) || ', versions ' || (select count(*) from pgmill.document)`
	const want = `* 02:30:00 00:00:07, job.a 00:01:00 1, versions 1`
	for document, message := range map[string]string{
		`[]`:                        `must be an object`,
		`null`:                      `must be an object`,
		`{"topics":{"job.a":null}}`: `/topics/job.a must be an object`,
		`{"reconciler":null}`:       `/reconciler must be an object`,
		`{"topics":{"job.a":{"max_retries":3.5}}}`: `/topics/job.a/max_retries must be a whole number, 0 to 99`,
		`{"topics":[],"pools":{}}`:                 `/pools must be topics, workflows or reconciler; /topics must be an object`,
		`{"workflows":{"x":120}}`:                  `/workflows/x must be an object`,
		`{"topics":{"mail":{},"a/b~c":1}}`:         `/topics/a~1b~0c must be an object; /topics/a~1b~0c must be words joined by dots, the first one job, at most 128 bytes; /topics/mail must be words joined by dots, the first one job, at most 128 bytes`,
		`{"topics":{"job.a":{"tries":1}}}`:         `/topics/job.a/tries must be one of timeout_seconds, max_queue_wait_seconds, max_retries`,
		`{"reconciler":{"max_retries":1}}`:         `/reconciler/max_retries must be one of running_timeout_seconds, max_queue_wait_seconds, dispatch_timeout_seconds, scan_interval_seconds`,
		`{"workflows":{"w x":{}}}`:                 `/workflows/w?x must be 1 to 128 of letters, digits and _.-`,
		`{"topics":{"job.a":{"max_retries":100,"timeout_seconds":-1,"max_queue_wait_seconds":1.5}}}`: `/topics/job.a/max_queue_wait_seconds must be a whole number, 0 to 315360000; ` +
			`/topics/job.a/max_retries must be a whole number, 0 to 99; /topics/job.a/timeout_seconds must be a whole number, 0 to 315360000`,
		`{"topics":{"job.a":{"timeout_seconds":"60"}},"reconciler":{"running_timeout_seconds":1e300}}`: `/reconciler/running_timeout_seconds must be a whole number, 0 to 315360000; /topics/job.a/timeout_seconds must be a whole number, 0 to 315360000`,
	} {
		_, err := w.pool.Exec(t.Context(), `select mill.set_timeouts($1::text::jsonb)`, document)
		var pe *pgconn.PgError
		if !errors.As(err, &pe) || pe.Code != "MI001" || pe.Message != "timeouts: "+message {
			t.Errorf("%s: %v\nwant %s", document, err, message)
			continue
		}
		var faults []struct{ Path, Message string }
		if err := json.Unmarshal([]byte(pe.Detail), &faults); err != nil || len(faults) == 0 {
			t.Errorf("%s: the detail is %s", document, pe.Detail)
		}
		if got := ask[string](w, kept); got != want {
			t.Errorf("%s left %s, want %s", document, got, want)
		}
	}
	if v := ask[int32](w, `select mill.set_timeouts('{}')`); v != 2 || ask[int64](w, `select count(*) from pgmill.topic_timeout`) != 0 {
		t.Errorf("an empty document is version %d, or leaves some", v)
	}
}

// C34, C49: what a job does not say comes from its topic's timeouts, then from its step,
// then from the reconciler's; waiting jobs get it at their next attempt.
func TestTimeoutsCount(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.rescuer()
	w.declare("job.step", `{}`) // 60 s, 3 attempts
	w.declare("job.more", `{}`)
	options := map[string]string{"job.step": `{}`, "job.said": `{"max_runtime_ms":5000,"max_queue_wait_ms":6000,"max_attempts":2}`, "job.more": `{"max_runtime_ms":7200000}`, "job.topic": `{}`, "job.none": `{}`}
	runs := func(topic string) float64 { // how long a job of the topic may run, as its worker is told
		t.Helper()
		w.submit(topic, `{}`, options[topic])
		return ask[float64](w, `select coalesce(round(extract(epoch from deadline_at - now())), 0)::float8 from mill.claim_jobs('w1', array[$1])`, topic)
	}
	for _, tt := range []struct {
		document string
		want     map[string]float64
	}{
		{`{}`, map[string]float64{"job.step": 60, "job.said": 5, "job.more": 60, "job.topic": 9000, "job.none": 9000}},
		{`{"topics":{"job.step":{"timeout_seconds":90},"job.said":{"timeout_seconds":90},"job.more":{"timeout_seconds":90},"job.topic":{"timeout_seconds":90}},"reconciler":{"running_timeout_seconds":8000}}`,
			map[string]float64{"job.step": 90, "job.said": 5, "job.more": 90, "job.topic": 90, "job.none": 8000}},
		{`{"topics":{"job.step":{"timeout_seconds":0}},"reconciler":{"running_timeout_seconds":9000}}`,
			map[string]float64{"job.step": 60, "job.said": 5, "job.more": 60, "job.topic": 9000, "job.none": 9000}},
	} {
		w.exec(`select mill.set_timeouts($1::text::jsonb)`, tt.document)
		for topic, want := range tt.want {
			if got := runs(topic); got != want {
				t.Errorf("with %s a job of %s may run for %v s, want %v", tt.document, topic, got, want)
			}
		}
	}

	w.exec(`select mill.set_timeouts('{"topics":{"job.topic":{"max_queue_wait_seconds":20},"job.said":{"max_queue_wait_seconds":20}},"reconciler":{"max_queue_wait_seconds":30}}')`)
	for topic, want := range map[string]float64{"job.topic": 20, "job.said": 6, "job.none": 30} {
		id := w.submit(topic, `{}`, options[topic])
		if got := ask[float64](w, `select extract(epoch from expires_at - since)::float8 from pgmill.job_waiting where job = $1`, id); got != want {
			t.Errorf("a job of %s may wait for %v s, want %v", topic, got, want)
		}
	}

	id := w.submit("job.again", `{}`, `{}`)
	w.exec(`select mill.set_timeouts('{"topics":{"job.again":{"max_retries":1}}}')`) // it waits already
	for attempt, want := range []string{"PENDING", "FAILED"} {
		_, token := w.claimed("job.again")
		if got := ask[string](w, `select mill.fail_job($1, $2, 't.x')`, id, token); got != want {
			t.Errorf("after attempt %d it is %s, want %s", attempt+1, got, want)
		}
		w.exec(`update pgmill.job_waiting set due_at = now() where job = $1`, id)
		w.exec(`select pgmill.promote_jobs()`)
	}
}

// C46, C47: an outside worker that renews for ever has a job for no longer than it may
// run; then it is a failed attempt, and past the deadline the end.
func TestOutsideWorkersTimeIsOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	me := w.rescuer()
	for _, tt := range []struct{ options, move, state, reason string }{
		{`{"max_runtime_ms":3600000,"max_attempts":1}`, ``, "TIMEOUT", "timeout"},
		{`{"max_runtime_ms":3600000,"max_attempts":2}`, ``, "PENDING", "timeout"},
		{`{"deadline_ms":3600000,"max_attempts":2}`, `update pgmill.job set deadline_at = now() - interval '1 s' where id = $1`, "TIMEOUT", "deadline"},
		{`{"max_attempts":2}`, `update pgmill.job_lease set until = now() where $1 <> ''`, "PENDING", "host_lost"},
	} {
		id := w.submit("job.over", `{}`, tt.options)
		_, token := w.claimed("job.over")
		w.exec(`select mill.renew_jobs(array[$1], array[$2])`, id, token)
		if !ask[bool](w, `select l.until <= coalesce(l.over_at, 'infinity') and l.until > now() + interval '50 s' from pgmill.job_lease l where token = $1`, token) {
			t.Errorf("%s: the lease is not for as long as it may be", tt.options)
		}
		if tt.reason != "host_lost" {
			w.exec(`update pgmill.job_lease set over_at = now() where token = $1`, token)
		}
		if tt.move != "" {
			w.exec(tt.move, id)
		}
		if tt.reason != "host_lost" {
			w.exec(`select mill.renew_jobs(array[$1], array[$2])`, id, token)
			if !ask[bool](w, `select cancelled from mill.renew_jobs(array[$1], array[$2])`, id, token) {
				t.Errorf("%s: it may go on", tt.options)
			}
		}
		w.exec(`select pgmill.rescue_jobs($1)`, me)
		if got := ask[string](w, `select state || ' ' || reason from pgmill.job where id = $1`, id); got != tt.state+" "+tt.reason {
			t.Errorf("%s: it is %s, want %s %s", tt.options, got, tt.state, tt.reason)
		}
		w.exec(`select mill.cancel($1)`, id)
	}
}

// A host goes by the configured timeout and not by its step's.
func TestHostsGoByTheConfiguredTimeout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`select mill.set_timeouts('{"topics":{"job.conf":{"timeout_seconds":1,"max_retries":0}}}')`)
	w.host(platform.Step[json.RawMessage, none]{Topic: "job.conf", Timeout: time.Hour, MaxAttempts: 5, Run: func(ctx context.Context, _ *platform.Attempt, _ json.RawMessage) (none, error) {
		<-ctx.Done()
		return none{}, ctx.Err()
	}})
	id := w.submit("job.conf", `{}`, `{}`)
	w.becomes(id, "TIMEOUT")
}
