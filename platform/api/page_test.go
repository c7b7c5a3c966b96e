package api_test

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
)

// X5: while jobs are submitted and end, well and not, each job and dead letter that was there
// all the time and did not change is on exactly one page of each list.
func TestPagesHoldWhileJobsComeAndGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const still = 300
	w.exec(`insert into pgmill.job (id, scope, topic, state, trace_id, updated_at, created_at)
		select 'still-' || g, 'org:acme', 'job.t.p', 'FAILED', 't', now() - g / 7 * interval '1 s', now() - interval '1 h' from generate_series(1, $1::int) g`, still)
	w.exec(`insert into pgmill.dead_letter (job, scope, topic, state, reason, attempts, died_at) select id, scope, topic, state, 'a.b', 1, updated_at from pgmill.job`)
	var writers sync.WaitGroup
	stop, wrote := make(chan struct{}), make(chan struct{})
	defer writers.Wait()
	defer close(stop)
	for i := range 2 {
		name, topic := fmt.Sprintf("w%d", i), fmt.Sprintf("job.t.p%d", i)
		writers.Go(func() {
			for {
				w.write(`select mill.submit_jobs((select jsonb_agg(jsonb_build_object('topic', $1::text, 'scope', 'org:acme')) from generate_series(1, 20)))`, topic)
				w.write(`select case when n % 2 = 0 then mill.complete_job(job_id, token) else mill.fail_job(job_id, token, 'a.b', false) end
					from mill.claim_jobs($1, array[$2], 15) with ordinality c(job_id, token, topic, input, attempt, deadline_at, n)`, name, topic)
				select {
				case <-stop:
					return
				case wrote <- struct{}{}:
				}
			}
		})
	}
	for path, id := range map[string]string{"/api/v1/jobs?limit=20": "id", "/api/v1/jobs?state=failed&limit=20": "id", "/api/v1/dlq/page?limit=20": "job_id"} {
		seen := map[string]int{}
		for cursor := ""; ; <-wrote {
			a := w.want(w.call(acme, "GET", path+cursor, ""), 200, "")
			for _, i := range a.items("items") {
				seen[i[id].(string)]++
			}
			if a.text("next_cursor") == "" {
				break
			}
			cursor = "&cursor=" + a.text("next_cursor")
		}
		for i := range still {
			if n := seen[fmt.Sprintf("still-%d", i+1)]; n != 1 {
				t.Errorf("%s shows still-%d %d times", path, i+1, n)
			}
		}
	}
}

// write is exec for other goroutines than the test's.
func (w world) write(sql string, args ...any) {
	if _, err := w.pool.Exec(w.Context(), sql, args...); err != nil {
		w.Errorf("%s: %v", sql, err)
	}
}

// A list without pages says that it is cut, and only then.
func TestACutListSaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`insert into pgmill.job (id, scope, topic, state, trace_id) select 'j' || g, 'org:acme', 'job.t', 'FAILED', case when g = 1 then 'more' else 'all' end from generate_series(1, 1001) g`)
	w.exec(`insert into pgmill.dead_letter (job, scope, topic, state, reason, attempts) select id, scope, topic, state, 'a.r' || id, 1 from pgmill.job where trace_id = 'all'`)
	count := func(path, want string) {
		t.Helper()
		a := w.want(w.call(acme, "GET", path, ""), 200, "")
		var all []json.RawMessage
		if err := json.Unmarshal([]byte(a.body), &all); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(len(all), " ", a.header.Get("X-Truncated")); got != want {
			t.Errorf("%s has %q, want %q", path, got, want)
		}
	}
	count("/api/v1/traces/all", "1000 ")
	count("/api/v1/dlq/counts", "1000 ")
	w.exec(`update pgmill.job set trace_id = 'all'`)
	w.exec(`insert into pgmill.dead_letter (job, scope, topic, state, reason, attempts) values ('j1', 'org:acme', 'job.t', 'FAILED', 'a.b', 1)`)
	count("/api/v1/traces/all", "1000 true")
	count("/api/v1/dlq/counts", "1000 true")
}
