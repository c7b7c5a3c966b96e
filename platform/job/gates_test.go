package job_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// seeds calls f with one seed after another for a while, or once with PGMILL_SEED.
func seeds(t *testing.T, fast time.Duration, f func(seed uint64)) {
	t.Helper()
	if s := os.Getenv("PGMILL_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("PGMILL_SEED: %v", err)
		}
		f(seed)
		return
	}
	if os.Getenv("PGMILL_SOAK") != "" {
		fast *= 100
	}
	n := 0
	for until := time.Now().Add(fast); !t.Failed() && (n < 3 || time.Now().Before(until)); n++ {
		f(rand.Uint64N(1 << 32))
	}
	t.Logf("%d seeds", n)
}

// F47, issue of jobs, 7: gates in every combination, against the model: no limit is
// exceeded, priorities and the lanes' order are kept, what has room is admitted, and
// each job ends.
func TestGatesTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	seeds(t, 5*time.Second, func(seed uint64) { (&round{world: w, r: rand.New(rand.NewPCG(seed, 1)), seed: seed}).play() })
}

// round is one random world of topics and scopes, and what was done to it.
type round struct {
	world
	r      *rand.Rand
	seed   uint64
	m      model
	topics []string
	scopes []string
	hosts  []string
	done   []string
}

func (o *round) wrong(format string, args ...any) {
	o.Helper()
	o.Fatalf("PGMILL_SEED=%d: %s\n%s\nafter\n%s\nwhat waits\n%s", o.seed, fmt.Sprintf(format, args...), o.describe(), strings.Join(o.done, "\n"),
		ask[string](o.world, `select coalesce(string_agg(w::text, E'\n' order by w.topic, w.seq), 'nothing') from pgmill.job_waiting w where w.topic = any ($1)`, o.topics))
}

func (o *round) describe() string {
	var s []string
	for _, t := range o.topics {
		s = append(s, fmt.Sprintf("%s %+v", t, *o.m.topics[t]))
	}
	for _, scope := range o.scopes {
		s = append(s, fmt.Sprintf("%s max_running %d", scope, o.m.scopes[scope]))
	}
	return strings.Join(s, "; ")
}

// maybe is 0 mostly, and 1 to most else.
func (o *round) maybe(most int) int { return max(0, o.r.IntN(2*most)-most+1) }

func (o *round) play() {
	o.m = model{topics: map[string]*gates{}, scopes: map[string]int{}, byID: map[string]*modelJob{}}
	for i := range 1 + o.r.IntN(3) {
		topic := fmt.Sprintf("job.p%d.t%d", o.seed, i)
		g := &gates{concurrency: o.maybe(4), perScope: o.maybe(3), perKey: o.maybe(2), rate: o.maybe(6)}
		o.m.topics[topic], o.topics = g, append(o.topics, topic)
		o.declare(topic, fmt.Sprintf(`{"concurrency":%d,"per_scope":%d,"per_key":%d,"rate":%d,"rate_per_ms":3600000,"backoff_ms":3600000,"backoff_max_ms":3600000}`,
			g.concurrency, g.perScope, g.perKey, g.rate))
	}
	for i := range 1 + o.r.IntN(4) {
		scope := fmt.Sprintf("org:p%d.s%d", o.seed, i)
		o.scopes = append(o.scopes, scope)
		if most := o.maybe(3); most > 0 {
			o.m.scopes[scope] = most
			o.exec(`select mill.limit_scope($1, $2, $3)`, scope, most, 1+o.r.IntN(3))
		}
	}
	for i := range 2 {
		o.hosts = append(o.hosts, fmt.Sprintf("p%d.h%d", o.seed, i))
		o.exec(`insert into pgmill.instance (kind, id, ttl, since) values ('worker', $1, '1 h', now() - interval '2 h')`, o.hosts[i])
	}
	steps := []func(){o.submits, o.submits, o.admits, o.admits, o.admits, o.ends, o.ends, o.ends, o.cancels, o.passes, o.sweeps}
	for range 40 {
		steps[o.r.IntN(len(steps))]()
		o.compare()
	}
	for n := 0; slices.ContainsFunc(o.m.jobs, func(j *modelJob) bool { return j.state == "PENDING" || j.state == "RUNNING" }); n++ {
		if n > 100 {
			o.wrong("these wait for ever: %v", slices.DeleteFunc(o.m.jobs, func(j *modelJob) bool { return j.state != "PENDING" }))
		}
		o.pass(60)
		for _, h := range o.hosts {
			o.admit(h, 100)
		}
		for _, j := range o.m.jobs {
			if j.state == "RUNNING" {
				o.end(j, "succeeded", "", false)
			}
		}
		o.compare()
	}
	o.exec(`update pgmill.instance set deregistered_at = now() where id = any ($1)`, o.hosts)
}

func (o *round) note(format string, args ...any) {
	o.done = append(o.done, fmt.Sprintf(format, args...))
}

// submits puts a few jobs.
func (o *round) submits() {
	for range 1 + o.r.IntN(6) {
		j := &modelJob{n: len(o.m.jobs), topic: o.topics[o.r.IntN(len(o.topics))], scope: o.scopes[o.r.IntN(len(o.scopes))], state: "PENDING",
			key: []string{"", "a", "b"}[o.r.IntN(3)], priority: o.r.IntN(3), cost: 1 + o.maybe(5), most: 1 + o.r.IntN(4)}
		options := map[string]any{"scope": j.scope, "priority": []string{"critical", "interactive", "batch"}[j.priority], "cost": j.cost, "max_attempts": j.most}
		if j.key != "" {
			options["key"] = j.key
		}
		debounced := false
		switch o.r.IntN(8) {
		case 0:
			options["delay_ms"], j.rest, j.late = 3_600_000, 60, true
		case 1:
			j.unique = "u"
		case 2:
			j.unique, debounced, j.rest, j.late = "u", true, 60, true
			options["debounce_ms"] = 3_600_000
		}
		if j.unique != "" {
			options["unique_key"] = j.unique
		}
		text, err := json.Marshal(options)
		if err != nil {
			o.Fatal(err)
		}
		j.id = o.submit(j.topic, `{}`, string(text))
		o.note("submit %v %s", j, text)
		if h := o.m.holder(j.topic, j.scope, j.unique); h != nil {
			if j.id != h.id {
				o.wrong("the unique key is %v's and another job was made", h)
			}
			blocked := ask[bool](o.world, `select exists (select from pgmill.job_waiting where job = $1 and blocked is not null)`, h.id)
			if debounced && h.state == "PENDING" && h.attempt == 0 && !blocked {
				h.rest, h.late = 60, true
			}
			continue
		}
		if o.m.byID[j.id] != nil {
			o.wrong("%v was merged into %v", j, o.m.byID[j.id])
		}
		o.m.jobs, o.m.byID[j.id] = append(o.m.jobs, j), j
	}
}

func (o *round) admits() { o.admit(o.hosts[o.r.IntN(2)], 1+o.r.IntN(8)) }

// admit lets a host ask for jobs.
func (o *round) admit(host string, slots int) {
	o.Helper()
	rows, err := o.pool.Query(o.Context(), `select a.claim, a.job, a.attempt from pgmill.admit($1, $2, $3) a order by a.claim`, host, o.topics, slots)
	if err != nil {
		o.wrong("admit: %v", err)
	}
	var claim int64
	var id string
	var attempt int
	var got []*modelJob
	if _, err := pgx.ForEachRow(rows, []any{&claim, &id, &attempt}, func() error {
		j := o.m.byID[id]
		j.claim = claim
		if attempt != j.attempt+1 {
			o.wrong("attempt %d of %v, want %d", attempt, j, j.attempt+1)
		}
		got = append(got, j)
		return nil
	}); err != nil {
		o.wrong("admit: %v", err)
	}
	o.note("admit %d by %s: %v", slots, host, got)
	// They come in no order: each lane's is by n.
	slices.SortFunc(got, func(a, b *modelJob) int { return a.n - b.n })
	worst := -1
	for _, j := range got {
		worst = max(worst, j.priority)
		if bad := o.m.start(j, host); bad != "" {
			o.wrong("%s", bad)
		}
	}
	if len(got) > slots {
		o.wrong("%d were admitted for %d slots", len(got), slots)
	}
	if bad := o.m.passed(worst, host); bad != "" {
		o.wrong("%s", bad)
	}
	if len(got) < slots {
		for _, j := range o.m.jobs {
			if o.m.may(j, host) {
				o.wrong("%v has room and %d of %d slots stay free", j, slots-len(got), slots)
			}
		}
	}
}

// ends ends some of what runs, in one of the ways that attempts end.
func (o *round) ends() {
	for _, j := range o.m.jobs {
		if j.state != "RUNNING" || o.r.IntN(2) == 0 {
			continue
		}
		switch o.r.IntN(7) {
		case 0:
			o.end(j, "failed", "t.bad", true)
		case 1:
			o.end(j, "failed", "t.bad", false)
		case 2:
			o.end(j, "failed", "timeout", o.r.IntN(2) == 0)
		case 3:
			o.end(j, "failed", "host_lost", false)
		case 4:
			o.end(j, "released", "", false)
		default:
			o.end(j, "succeeded", "", false)
		}
	}
}

func (o *round) end(j *modelJob, outcome, reason string, final bool) {
	o.note("end %v: %s %s %v", j, outcome, reason, final)
	o.exec(`select pgmill.end_claims(array[$1::bigint], array[$2], array[nullif($3, '')], array[$4::boolean], array[null::jsonb])`, j.claim, outcome, reason, final)
	o.m.end(j, outcome, reason, final)
}

func (o *round) cancels() {
	if len(o.m.jobs) == 0 {
		return
	}
	j := o.m.jobs[o.r.IntN(len(o.m.jobs))]
	o.note("cancel %v", j)
	o.exec(`select mill.cancel($1)`, j.id)
	if j.state == "PENDING" || j.state == "RUNNING" {
		j.state = "CANCELLED"
	}
}

func (o *round) passes() { o.pass(20 * (1 + o.r.IntN(3))) }

// pass moves every time of the database that waits.
func (o *round) pass(minutes int) {
	o.note("%d minutes pass", minutes)
	o.exec(`update pgmill.job_waiting set due_at = due_at - $1 * interval '1 minute' where due_at < 'infinity' and topic = any ($2)`, minutes, o.topics)
	o.exec(`update pgmill.topic_rate set tat = tat - $1 * interval '1 minute' where topic = any ($2)`, minutes, o.topics)
	o.m.pass(minutes)
	o.sweeps()
}

func (o *round) sweeps() {
	o.note("sweep")
	o.exec(`select pgmill.sweep_jobs($1)`, o.hosts[0])
}

// compare holds every job's state against the model's.
func (o *round) compare() {
	o.Helper()
	rows, err := o.pool.Query(o.Context(), `select id, state, attempt from mill.jobs where topic = any ($1)`, o.topics)
	if err != nil {
		o.Fatal(err)
	}
	var id, state string
	var attempt, n int
	if _, err := pgx.ForEachRow(rows, []any{&id, &state, &attempt}, func() error {
		n++
		if j := o.m.byID[id]; j == nil || j.state != state {
			o.wrong("%v is %s, want %s", j, state, j.state)
		}
		return nil
	}); err != nil {
		o.Fatal(err)
	}
	if n != len(o.m.jobs) {
		o.wrong("there are %d jobs, want %d", n, len(o.m.jobs))
	}
}
