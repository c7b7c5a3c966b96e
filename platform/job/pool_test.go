package job_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/host"
	"github.com/pgmill/pgmill/platform/platformtest"
)

func done(context.Context, *platform.Attempt) error { return nil }

// ranOn waits for a job's end and fails unless this one ran it.
func (w world) ranOn(id, instance string) {
	w.Helper()
	w.becomes(id, "SUCCEEDED")
	if got := ask[string](w, `select instance from mill.jobs where id = $1`, id); got != instance {
		w.Errorf("the job ran on %s, want %s", got, instance)
	}
}

// waits fails unless a job waits for this.
func (w world) waits(id, reason string) {
	w.Helper()
	if got := ask[string](w, `select coalesce(max(reason), 'nothing') from mill.why_not_running where id = $1`, id); got != reason {
		w.Errorf("the job waits for %s, want %s", got, reason)
	}
}

// C30, C35: a placement runs where the labels are and nowhere else, and waits while they
// are nowhere; what has none runs anywhere.
func TestPlacementRunsWhereTheLabelsAre(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	step := work("job.place", done)
	w.host(step)
	a := w.hostWith(&host.Worker{Labels: map[string]string{"zone": "a", "disk": "ssd"}}, step)
	b := w.hostWith(&host.Worker{Labels: map[string]string{"zone": "b"}}, step)
	var jobs [2][]string
	for range 10 {
		jobs[0] = append(jobs[0], w.submit("job.place", `{}`, `{"placement": {"zone": "a"}}`))
		jobs[1] = append(jobs[1], w.submit("job.place", `{}`, `{"placement": {"zone": "b"}, "labels": {"zone": "a"}}`))
	}
	for i, h := range []*host.Worker{a, b} {
		for _, id := range jobs[i] {
			w.ranOn(id, h.ID())
		}
	}
	id := w.submit("job.place", `{}`, `{"placement": {"zone": "b", "disk": "ssd"}}`)
	w.waits(id, "no_workers")
	c := w.hostWith(&host.Worker{Labels: map[string]string{"zone": "b", "disk": "ssd"}}, step)
	w.ranOn(id, c.ID())
	platformtest.Invariants(t, w.pool)
}

// C28, C30: a topic's jobs are its pools', whoever else has its step, and what a job
// requires is met by a pool that offers it; who names no pools is of none.
func TestPoolsHaveTheirTopics(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`select mill.set_pools('{"topics": {"job.p": "p", "job.q": "q", "job.pg": ["p", "gpu"]}, "pools": {"p": {}, "q": {}, "gpu": {"requires": ["gpu"]}}}')`)
	var steps []platform.Function
	for _, topic := range []string{"job.p", "job.q", "job.pg"} {
		steps = append(steps, work(topic, done))
	}
	q := w.hostWith(&host.Worker{Pools: []string{"q"}}, steps...)
	mapped, needs := w.submit("job.p", `{}`, `{}`), w.submit("job.pg", `{}`, `{"requires": ["GPU"]}`)
	w.ranOn(w.submit("job.q", `{}`, `{}`), q.ID())
	w.waits(mapped, "no_workers")
	w.waits(needs, "no_workers")

	p := w.hostWith(&host.Worker{Pools: []string{"p", "q"}}, steps...)
	w.ranOn(mapped, p.ID())
	w.ranOn(w.submit("job.pg", `{}`, `{}`), p.ID())
	w.waits(needs, "no_workers")
	platformtest.Stop(t, p)
	none := w.hostWith(&host.Worker{Pools: []string{}}, steps...)
	w.ranOn(w.submit("job.p", `{}`, `{}`), none.ID())
	w.waits(needs, "no_workers")
	gpu := w.hostWith(&host.Worker{Pools: []string{"gpu"}}, steps...)
	w.ranOn(needs, gpu.ID())

	mapped = w.submit("job.nobody", `{}`, `{}`)
	w.waits(mapped, "no_pool_mapping")
	w.exec(`select mill.set_pools('{"topics": {"job.nobody": "q", "job.p": "p"}, "pools": {"p": {}, "q": {}}}')`)
	w.waits(mapped, "no_workers")
	platformtest.Invariants(t, w.pool)
}

// A worker that listens on a pool gets the jobs of the topics that go to it, those of a
// later document, too, and of others only if it names them.
func TestAWorkerListensOnAPool(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`select mill.set_pools('{"topics": {"job.a": "p", "job.b": ["q", "p"], "job.c": "q"}, "pools": {"p": {}, "q": {}}}')`)
	for _, topic := range []string{"job.a", "job.b", "job.c", "job.d", "job.default"} {
		_ = w.submit(topic, `{}`, `{}`)
	}
	gets := func(topics, pools, want string) {
		t.Helper()
		got := ask[string](w, `select coalesce(string_agg(topic, ' ' order by topic), '') from mill.claim_jobs('w1', $1::text[], 10, pools => $2::text[])`, topics, pools)
		if got != want {
			t.Errorf("of topics %s and pools %s it gets %q, want %q", topics, pools, got, want)
		}
	}
	gets("{job.c,job.d}", "{p}", "")
	gets("{job.c}", "{q}", "job.c")
	gets("{}", "{p}", "job.a job.b")
	gets("{}", "{default}", "job.default")
	gets("{job.d}", "{default,p}", "job.d")
	id := w.submit("job.c", `{}`, `{}`)
	w.waits(id, "no_workers") // w1 has named it once, and is of other pools
	w.exec(`select mill.set_pools('{"topics": {"job.c": "p"}, "pools": {"p": {}}}')`)
	gets("{}", "{p}", "job.c")

	for pools, names := range map[string]string{"{}": "pools", "{a b}": "pools", "{null}": "pools", "{" + strings.Repeat("p,", 100) + "p}": "pools"} {
		w.refusesClaim(names, `select mill.claim_jobs('w1', '{job.a}', pools => $1::text[])`, pools)
	}
	for _, labels := range []string{`null`, `[]`, `{"a": 1}`, `{"": "x"}`, `{"a": "` + strings.Repeat("x", 257) + `"}`} {
		w.refusesClaim("labels", `select mill.claim_jobs('w1', '{job.a}', labels => $1::text::jsonb)`, labels)
	}
	w.refusesClaim("topics", `select mill.claim_jobs('w1')`)
	w.refusesClaim("topics", `select mill.claim_jobs('w1', '{a}', pools => '{p}')`)
}

func (w world) refusesClaim(names, sql string, args ...any) {
	w.Helper()
	_, err := w.pool.Exec(w.Context(), sql, args...)
	var pe *pgconn.PgError
	if !errors.As(err, &pe) || pe.Code != "MI001" || !strings.HasPrefix(pe.Message, names+" must be") {
		w.Errorf("%s %v: %v; want MI001 that names %s", sql, args, err, names)
	}
}

// C31: who has room asks and gets no more than it has room for, so that a backlog fills
// every host.
func TestABacklogFillsEveryHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const room = 5
	var all sync.WaitGroup
	all.Add(2 * room)
	step := work("job.share", func(context.Context, *platform.Attempt) error {
		all.Done()
		all.Wait() // nobody ends before as many run as both have room for
		return nil
	})
	hosts := []string{w.hostWith(&host.Worker{MaxJobs: room}, step).ID(), w.hostWith(&host.Worker{MaxJobs: room}, step).ID()}
	for range 2 * room {
		_ = w.submit("job.share", `{}`, `{}`)
	}
	platformtest.WaitFor(t, w.pool, `select count(*) = $1 from mill.jobs where state = 'SUCCEEDED'`, 2*room)
	for _, id := range hosts {
		if got := ask[int](w, `select count(*) from mill.jobs where instance = $1`, id); got != room {
			t.Errorf("%s ran %d of %d, want %d", id, got, 2*room, room)
		}
	}
}
