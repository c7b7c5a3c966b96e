package job_test

import (
	"fmt"
	"testing"
)

// aside submits a job of each of n keys and moves it aside, as if its key were at its
// limit.
func (w world) aside(topic string, n int) {
	w.Helper()
	w.exec(`select count(*) from mill.submit_jobs((select jsonb_agg(jsonb_build_object('topic', $1::text, 'key', 'k' || i)) from generate_series(1, $2::int) i))`, topic, n)
	w.exec(`update pgmill.job_waiting w set due_at = 'infinity', blocked = pgmill.block_key(w.topic, w.scope, w.key) where w.topic = $1`, topic)
}

// A poll makes up for what an end has missed: all of it, or if there are more keys than
// it may look at some of it, and then the others.
func TestThePollLetsBackWhatWasMissed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for topic, polls := range map[string][]int{"job.k.few": {500, 0}, "job.k.many": {500, 500, 200, 0}} {
		w.declare(topic, `{"per_key":1}`)
		sum := 0
		for _, n := range polls {
			sum += n
		}
		w.aside(topic, sum)
		for _, want := range polls {
			if n := ask[int](w, `select pgmill.unblock()`); n != want {
				t.Errorf("%s: a poll lets back %d, want %d", topic, n, want)
			}
		}
	}

	// Of many that are at their limits the one that is not is found, too.
	w.declare("job.k.one", `{"per_key":1}`)
	w.aside("job.k.one", 1200)
	w.exec(`insert into pgmill.river_job (state, attempt, attempted_at, attempted_by, args, kind, queue, max_attempts)
		select 'running', 1, now(), array['me'], jsonb_build_object('scope', 'install', 'key', 'k' || i), 'job.k.one', 'job', 1 from generate_series(1, 1200) i where i <> 700`)
	for polls := 1; ask[int](w, `select pgmill.unblock()`) == 0; polls++ {
		if polls == 200 { // each finds it with a chance of 5 in 12
			t.Fatal("not found by 200 polls")
		}
	}
	if got := ask[string](w, `select string_agg(key, ' ') from pgmill.job_waiting where topic = 'job.k.one' and blocked is null`); got != "k700" {
		t.Errorf("let back are %s, want k700", got)
	}
	w.exec(`delete from pgmill.river_job where kind = 'job.k.one'`)
}

// An end looks at its own key and at no other, however many wait at their limits.
func TestAnEndLooksAtItsKeyOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_ = w.rescuer()
	const claims = ` from pgmill.river_job where queue = 'job'`
	for i, end := range []string{
		`select pgmill.end_claims(array_agg(id), null, null, null, array_agg('{}'::jsonb))` + claims,
		`select pgmill.settle_job(id, '{}')` + claims,
		`select pgmill.end_claims(array_agg(id), '{failed}', '{t.x}', '{true}', '{null}')` + claims,
		`select pgmill.end_claims(array_agg(id), '{failed}', '{t.x}', '{false}', '{null}')` + claims,
		`select mill.cancel(args ->> 'job')` + claims,
	} {
		topic := fmt.Sprint("job.k.end", i)
		w.declare(topic, `{"per_key":1,"backoff_ms":3600000,"backoff_max_ms":3600000}`)
		w.put(1, topic, `{"key":"k2"}`)
		if got := w.admits(1, "{"+topic+"}"); got["install"] != 1 {
			t.Fatalf("admitted %v", got)
		}
		w.aside(topic, 3)
		w.exec(end)
		if got := ask[string](w, `select coalesce(string_agg(key, ' '), 'none') from pgmill.job_waiting where topic = $1 and due_at is null`, topic); got != "k2" {
			t.Errorf("%s let back %s, want k2", end, got)
		}
	}
}

// And it looks by the indexes of keys: by others it would read all that runs and a whole
// lane for each key.
func TestAnEndReadsWhatIsOfItsKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_ = w.rescuer()
	w.declare("job.k.plan", `{"per_key":1}`)
	w.put(2, "job.k.plan", `{"key":"k"}`)
	w.admits(2, "{job.k.plan}")
	conn, err := w.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	const looks = `select idx_scan from pg_stat_user_indexes where indexrelname in ('river_job_key', 'job_waiting_again') order by indexrelname`
	var used [2][2]int64
	for i := range used {
		if i > 0 {
			if _, err := conn.Exec(t.Context(), `select pgmill.end_claims(array_agg(id), null, null, null, array_agg('{}'::jsonb)) from pgmill.river_job where queue = 'job'`); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := conn.Exec(t.Context(), `select pg_stat_force_next_flush()`); err != nil {
			t.Fatal(err)
		}
		if err := conn.QueryRow(t.Context(), `select array(`+looks+`)`).Scan(&used[i]); err != nil {
			t.Fatal(err)
		}
	}
	if used[1][0] == used[0][0] || used[1][1] == used[0][1] {
		t.Errorf("scans of the two indexes before the end and after it: %v", used)
	}
}
