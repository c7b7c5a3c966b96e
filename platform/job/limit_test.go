package job_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/host"
	"github.com/pgmill/pgmill/platform/platformtest"
)

// put submits n jobs of a scope.
func (w world) put(n int, topic, options string) {
	w.Helper()
	w.exec(`select count(*) from mill.submit_jobs((select jsonb_agg(jsonb_build_object('topic', $2::text) || $3::text::jsonb) from generate_series(1, $1)))`, n, topic, options)
}

// admits lets an instance ask for n jobs and answers how many it got of each scope.
func (w world) admits(n int, topics string) map[string]int {
	w.Helper()
	rows, err := w.pool.Query(w.Context(), `select scope, count(*)::int from pgmill.admit('me', $1::text[], $2) group by 1`, topics, n)
	if err != nil {
		w.Fatal(err)
	}
	got := map[string]int{}
	var scope string
	var count int
	if _, err := pgx.ForEachRow(rows, []any{&scope, &count}, func() error { got[scope] = count; return nil }); err != nil {
		w.Fatal(err)
	}
	return got
}

// finish ends everything that runs.
func (w world) finish() {
	w.exec(`select pgmill.end_claims(coalesce(array_agg(id), '{}'), null, null, null, coalesce(array_agg(null::jsonb), '{}')) from pgmill.river_job where queue = 'job'`)
}

// declare writes down a topic with limits, as a host would.
func (w world) declare(topic, limits string) {
	w.Helper()
	w.exec(`select pgmill.declare_topics(jsonb_build_array(jsonb_build_object('name', $1::text, 'module', 't', 'max_attempts', 3, 'max_runtime_ms', 60000,
		'backoff_ms', 1, 'backoff_max_ms', 1000, 'rate_per_ms', 60000) || $2::text::jsonb))`, topic, limits)
}

// F47: a scope with many jobs takes turns with those that have few, however late they
// come; weight and cost say how large a turn is.
func TestScopesTakeTurns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_ = w.rescuer()
	w.put(5000, "job.f", `{"scope":"org:flood"}`)
	if got := w.admits(100, "{job.f}"); got["org:flood"] != 100 {
		t.Errorf("alone it gets %v of 100", got)
	}
	w.finish()
	for i := range 9 {
		w.put(10, "job.f", fmt.Sprintf(`{"scope":"org:s%d"}`, i))
	}
	got := w.admits(100, "{job.f}")
	for i := range 9 {
		if n := got[fmt.Sprintf("org:s%d", i)]; n < 9 {
			t.Errorf("org:s%d got %d of its 10 in the first hundred: %v", i, n, got)
		}
	}
	w.finish()

	w.put(100, "job.w", `{"scope":"org:one"}`)
	w.put(100, "job.w", `{"scope":"org:three"}`)
	w.put(100, "job.w", `{"scope":"org:dear","cost":10}`)
	w.exec(`select mill.limit_scope('org:three', null, 3)`)
	sum := map[string]int{}
	for range 14 { // a few at a time: the turns go on from call to call
		for s, n := range w.admits(3, "{job.w}") {
			sum[s] += n
		}
	}
	if sum["org:one"] < 8 || sum["org:one"] > 12 || sum["org:three"] < 26 || sum["org:three"] > 33 || sum["org:dear"] < 1 || sum["org:dear"] > 2 {
		t.Errorf("of 42 turns: %v; want about 10, 30 and 1", sum)
	}
}

// Priorities go before turns.
func TestPriorityGoesFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_ = w.rescuer()
	w.put(10, "job.p", `{"priority":"batch","scope":"org:batch"}`)
	w.put(10, "job.p", `{"scope":"org:interactive"}`)
	w.put(10, "job.p", `{"priority":"critical","scope":"org:critical"}`)
	if got := w.admits(15, "{job.p}"); got["org:critical"] != 10 || got["org:interactive"] != 5 {
		t.Errorf("of fifteen: %v", got)
	}
}

// C45: limits count what runs, in all hosts together; what has no room waits with the
// reason, and goes on when there is.
func TestLimits(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, limits, scope string
		put                 string
		want                int
		reason              string
	}{
		{"of the topic", `{"concurrency":3}`, "", `{}`, 3, "topic_limit"},
		{"of each scope", `{"per_scope":2}`, "", `{}`, 2, "topic_limit"},
		{"of each key", `{"per_key":1}`, "", `{"key":"k"}`, 1, "key_limit"},
		{"of the scope in all topics", `{}`, "install", `{}`, 4, "tenant_limit"},
		{"how many start in a minute", `{"rate":5}`, "", `{}`, 5, "topic_limit"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			me := w.rescuer()
			w.declare("job.l", tt.limits)
			w.exec(`insert into pgmill.instance_function (instance, function) values ($1, 'job.l')`, me)
			if tt.scope != "" {
				w.exec(`select mill.limit_scope($1, 4)`, tt.scope)
			}
			w.put(10, "job.l", tt.put)
			first, second := w.admits(8, "{job.l}"), w.admits(8, "{job.l}")
			if first["install"] != tt.want || second["install"] != 0 {
				t.Errorf("admitted %v and then %v; want %d and none", first, second, tt.want)
			}
			w.exec(`update pgmill.job_waiting set since = since - interval '1 minute'`)
			got := ask[string](w, `select string_agg(distinct reason, ' ') from mill.why_not_running where kind = 'job' and id in (select job from pgmill.job_waiting where due_at is null or due_at = 'infinity' order by due_at limit 1)`)
			if got != tt.reason {
				t.Errorf("why it waits: %q, want %q", got, tt.reason)
			}
			w.finish()
			if strings.Contains(tt.limits, "rate") {
				w.exec(`update pgmill.topic_rate set tat = tat - interval '1 minute'`)
			}
			if third := w.admits(8, "{job.l}"); third["install"] != min(tt.want, 8) {
				t.Errorf("after those had ended: %v", third)
			}
		})
	}
}

// What waited for a limit starts when there is room, not at the next poll; so does the
// next suspect.
func TestLimitedJobsFollowEachOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	limited := func(topic string, set func(s *platform.Step[json.RawMessage, none])) platform.Function {
		s := work(topic, func(context.Context, *platform.Attempt) error { return nil })
		set(&s)
		return s
	}
	w.put(30, "job.n.topic", `{}`)
	w.put(30, "job.n.scope", `{}`)
	w.put(30, "job.n.key", `{"key":"k"}`)
	w.put(30, "job.n.suspect", `{"max_attempts":5}`)
	w.exec(`update pgmill.job_waiting set demand = '!', attempt = 3 where topic = 'job.n.suspect'`)
	w.exec(`select pgmill.open_lane('job.n.suspect', 1::smallint, '!', 'install')`)
	began := time.Now()
	w.hostWith(&host.Worker{Poll: 5 * time.Second},
		limited("job.n.topic", func(s *platform.Step[json.RawMessage, none]) { s.Concurrency = 1 }),
		limited("job.n.scope", func(s *platform.Step[json.RawMessage, none]) { s.PerScope = 1 }),
		limited("job.n.key", func(s *platform.Step[json.RawMessage, none]) { s.PerKey = 1 }),
		work("job.n.suspect", func(context.Context, *platform.Attempt) error { return nil }))
	platformtest.WaitWithin(t, w.pool, 3*time.Minute, `select count(*) = 0 from pgmill.job where state = 'PENDING'`)
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("30 of each took %v", took)
	}
}

// A key at its limit does not stop the jobs of others that stand behind its own (F47),
// a rate counts in all lanes together, and a suspect's turn does not wait for those of
// its topic that are before it.
func TestLimitsStopNobodyElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_ = w.rescuer()
	w.declare("job.k", `{"per_key":1}`)
	w.put(20, "job.k", `{"key":"k"}`)
	w.put(3, "job.k", `{}`)
	if got := w.admits(4, "{job.k}"); got["install"] != 4 {
		t.Errorf("of one key with twenty jobs and three without: %v; want one and three", got)
	}

	w.declare("job.r", `{"rate":5}`)
	for _, scope := range []string{"org:a", "org:b", "org:c"} {
		w.put(10, "job.r", fmt.Sprintf(`{"scope":%q}`, scope))
	}
	sum := 0
	for _, n := range w.admits(100, "{job.r}") {
		sum += n
	}
	if sum != 5 {
		t.Errorf("%d started in a minute, want 5", sum)
	}

	for _, scope := range []string{"org:a", "org:b"} {
		w.put(1, "job.s", fmt.Sprintf(`{"scope":%q}`, scope))
	}
	w.exec(`update pgmill.job_waiting set demand = '!' where topic = 'job.s'`)
	w.exec(`insert into pgmill.lane (topic, priority, demand, scope, n, vt) select topic, priority, demand, scope, 0, 50 from pgmill.job_waiting where topic = 'job.s'`)
	w.put(10, "job.s", `{}`)
	got := w.admits(100, "{job.s}")
	if got["install"] != 10 || got["org:a"]+got["org:b"] != 1 {
		t.Errorf("of two suspects and ten others: %v; want one and ten", got)
	}
}

// C26 to C35: who may run what, by what a worker says when it claims. Ordinary labels
// never demand anything.
func TestDemands(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`select mill.set_pools('{"topics":{"job.gpu":["slow","fast"],"job.d":"slow"},"pools":{"slow":{},"fast":{"requires":["GPU "]}}}')`)
	w.exec(`select mill.claim_jobs('you', '{job.d}', pools => '{slow}', labels => '{"zone":"y"}'), mill.claim_jobs('fast', pools => '{fast}'), mill.claim_jobs('any', '{job.d}')`)
	for _, tt := range []struct {
		name, topic, options string
		pools, labels        string
		want                 bool
	}{
		{"nothing asked", "job.d", `{}`, "{slow}", `{}`, true},
		{"labels are no demand", "job.d", `{"labels":{"zone":"x"}}`, "{slow}", `{}`, true},
		{"another pool", "job.d", `{}`, "{fast}", `{}`, false},
		{"who names no pools has its topics wherever they go", "job.d", `{}`, "", `{}`, true},
		{"but offers nothing", "job.gpu", `{"requires":["gpu"]}`, "", `{}`, false},
		{"and is not preferred", "job.d", `{"preferred_pool":"slow"}`, "", `{}`, false},
		{"a topic in no document is the default pool's", "job.e", `{}`, "{default}", `{}`, true},
		{"what the pool offers", "job.gpu", `{"requires":["gpu"]}`, "{fast}", `{}`, true},
		{"what it does not", "job.gpu", `{"requires":["gpu"]}`, "{slow}", `{}`, false},
		{"a placement that fits", "job.d", `{"placement":{"zone":"x"}}`, "{slow}", `{"zone":"x","a":"b"}`, true},
		{"one that does not", "job.d", `{"placement":{"zone":"x"}}`, "{slow}", `{"zone":"y"}`, false},
		{"one without labels", "job.d", `{"placement":{"zone":"x"}}`, "{slow}", ``, false},
		{"another pool is preferred", "job.gpu", `{"preferred_pool":"fast"}`, "{slow}", `{}`, false},
		{"a preferred pool", "job.gpu", `{"preferred_pool":"fast"}`, "{slow,fast}", `{}`, true},
		{"the preferred pool does not offer it", "job.gpu", `{"preferred_pool":"slow","requires":["gpu"]}`, "{slow,fast}", `{}`, false},
		{"a pool that is not the topic's", "job.d", `{"preferred_pool":"fast"}`, "{slow,fast}", `{}`, false},
		{"a worker that lives", "job.d", `{"preferred_worker":"you"}`, "{slow}", `{}`, false},
		{"one that does not", "job.d", `{"preferred_worker":"gone"}`, "{slow}", `{}`, true},
		{"oneself", "job.d", `{"preferred_worker":"me"}`, "{slow}", `{}`, true},
		{"one that lives and has not the labels", "job.d", `{"preferred_worker":"you","placement":{"zone":"x"}}`, "{slow}", `{"zone":"x"}`, true},
		{"one that lives in another pool", "job.d", `{"preferred_worker":"fast"}`, "{slow}", `{}`, true},
		{"one of no pool that lives", "job.d", `{"preferred_worker":"any"}`, "{slow}", `{}`, false},
		{"one of no pool where a pool is asked for", "job.d", `{"preferred_worker":"any","preferred_pool":"slow"}`, "{slow}", `{}`, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			id := w.submit(tt.topic, `{}`, tt.options)
			got := ask[bool](w, `select exists (select from mill.claim_jobs('me', array[$1], 10, 60, nullif($2, '')::text[], nullif($3, '')::jsonb))`, tt.topic, tt.pools, tt.labels)
			if got != tt.want {
				t.Errorf("admitted: %v, want %v", got, tt.want)
			}
			_ = ask[string](w, `select mill.cancel($1)`, id)
		})
	}
	platformtest.Invariants(t, w.pool)
}

// A weight is bounded, since turns are divided by it; what is refused changes nothing.
func TestScopeLimitsAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`select mill.limit_scope('org:a', 3, 2)`)
	for _, tt := range []struct {
		scope       any
		most, weigh string
		taken       bool
	}{
		{"org:low", "0", "0.001", true},
		{"org:high", "null", "1000", true},
		{"org:a", "1", "0.0009", false},
		{"org:a", "1", "0", false},
		{"org:a", "1", "-1", false},
		{"org:a", "1", "1000.1", false},
		{"org:a", "1", "'NaN'", false},
		{"org:a", "1", "'Infinity'", false},
		{"org:a", "1", "null", false},
		{"org:a", "-1", "1", false},
		{"org", "1", "1", false},
		{nil, "1", "1", false},
	} {
		_, err := w.pool.Exec(t.Context(), `select mill.limit_scope($1, `+tt.most+`, `+tt.weigh+`)`, tt.scope)
		if tt.taken != (err == nil) || err != nil && !strings.Contains(err.Error(), "MI001") {
			t.Errorf("at most %s of %v with weight %s: %v", tt.most, tt.scope, tt.weigh, err)
		}
	}
	if got := ask[string](w, `select string_agg(concat_ws(' ', scope, max_running, weight), ', ' order by scope) from pgmill.scope_limit`); got != "org:a 3 2, org:high 1000, org:low 0 0.001" {
		t.Errorf("what counts now: %s", got)
	}
}

// C27: a bad document of pools is refused with what is wrong, and the one before stays.
func TestPoolsDocument(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`select mill.set_pools('{"topics":{"job.a":"p"},"pools":{"p":{}}}')`)
	for bad, says := range map[string]string{
		`null`:                                  "the document must be an object",
		`[]`:                                    "the document must be an object",
		`{}`:                                    "topics must name at least one topic",
		`{"topics":{}}`:                         "topics must name at least one topic",
		`{"topics":null}`:                       "topics must name at least one topic",
		`{"topics":{"job.a":"p"},"more":1}`:     "the document has topics and pools and nothing else",
		`{"topics":{"job.a":"p"},"pools":7}`:    "pools must be an object",
		`{"topics":{"a":"p"},"pools":{"p":{}}}`: "a topic must be words joined by dots, the first one job",
		`{"topics":{"job.a":7}}`:                "a topic goes to a pool or an array of pools",
		`{"topics":{"job.a":null}}`:             "a topic goes to a pool or an array of pools",
		`{"topics":{"job.a":[]}}`:               "a topic goes to a pool or an array of pools",
		`{"topics":{"job.a":"q"},"pools":{"p":{}}}`:                          "each pool of a topic must be listed in pools",
		`{"topics":{"job.a":["p",7]},"pools":{"p":{}}}`:                      "each pool of a topic must be listed in pools",
		`{"topics":{"job.a":"p"},"pools":{"p":[]}}`:                          "pool p must be an object with requires, an array of words",
		`{"topics":{"job.a":"p"},"pools":{"p":{"x":1}}}`:                     "pool p must be an object with requires, an array of words",
		`{"topics":{"job.a":"p"},"pools":{"p":{},"p\t":{}}}`:                 "pool p? must be an object with requires, an array of words",
		`{"topics":{"job.a":"p"},"pools":{"p":{"requires":"gpu"}}}`:          "pool p must be an object with requires, an array of words",
		`{"topics":{"job.a":"p"},"pools":{"p":{"requires":["gpu",null]}}}`:   "pool p must be an object with requires, an array of words",
		`{"topics":{"job.a":"p"},"pools":{"p":{"requires":["gpu",{}]}}}`:     "pool p must be an object with requires, an array of words",
		`{"topics":{"job.a":"p"},"pools":{"p":{"requires":["gpu"," "]}}}`:    "pool p must be an object with requires, an array of words",
		`{"topics":{"job.b":"p","job.a":"p"},"pools":{"p":{"requires":{}}}}`: "pool p must be an object with requires, an array of words",
	} {
		_, err := w.pool.Exec(t.Context(), `select mill.set_pools($1::text::jsonb)`, bad)
		var pe *pgconn.PgError
		if !errors.As(err, &pe) || pe.Code != "MI001" || pe.Message != "pools: "+says {
			t.Errorf("%s: %v; want MI001 pools: %s", bad, err, says)
		}
	}
	if got := ask[string](w, `select max(version) || (select string_agg(topic || pool, '') from pgmill.pool_topic) from pgmill.document`); got != "1job.ap" {
		t.Errorf("what counts now: %s", got)
	}
}

// What an old snapshot keeps in the index is not read again and again: the lane's low
// goes past what was admitted, and never past what waits (see pgmill.admit).
func TestLowFollowsWhatIsDone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_ = w.rescuer()
	tx, err := w.pool.Begin(t.Context()) // a submit that takes its time
	if err != nil {
		t.Fatal(err)
	}
	if _, err := platform.Enqueue(t.Context(), tx, platform.NewJob{Topic: "job.low"}); err != nil {
		t.Fatal(err)
	}
	low := func() int64 {
		return ask[int64](w, `select coalesce(max(low), 0) from pgmill.lane where topic = 'job.low'`)
	}
	for range 3 {
		w.put(10, "job.low", `{}`)
		w.exec(`select pgmill.promote_jobs()`) // the first find the lane under way, and come as due
		if got := w.admits(10, "{job.low}")["install"]; got != 10 {
			t.Errorf("admitted %d of 10 while another submit is under way", got)
		}
	}
	if got := low(); got > 1 {
		t.Errorf("low is %d while the first job is not there yet", got)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.exec(`select pgmill.promote_jobs()`)
	total := w.admits(10, "{job.low}")["install"]
	for range 3 {
		w.put(2, "job.low", `{}`)
		total += w.admits(10, "{job.low}")["install"]
	}
	if total != 7 || ask[int64](w, `select count(*) from pgmill.job_waiting`) != 0 {
		t.Errorf("admitted %d, want 7", total)
	}
	// Transactions of other databases hold it back for as long as they last.
	for until := time.Now().Add(30 * time.Second); low() < ask[int64](w, `select last_value - 2 from pgmill.job_seq`); {
		if time.Now().After(until) {
			t.Fatalf("low stays at %d, the last job is number %d", low(), ask[int64](w, `select last_value from pgmill.job_seq`))
		}
		w.put(1, "job.low", `{}`)
		w.admits(10, "{job.low}")
	}
}
