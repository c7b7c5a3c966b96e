package job_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/platformtest"
)

// visit is a visit to the lanes, of which none is used too lately.
func (w world) visit() {
	w.Helper()
	w.exec(`select pgmill.remove_lanes('0 s')`)
}

// laneless visits until no lane is left: transactions of other databases are waited for.
func (w world) laneless() {
	w.Helper()
	platformtest.WaitWithin(w, w.pool, time.Minute, `select pgmill.remove_lanes('0 s') >= 0 and not exists (select from pgmill.lane)`)
}

// A lane that nobody uses is gone after three visits, or some more, and comes again with
// the next job. What is due later comes back to one, too.
func TestIdleLanesAreRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	step := platform.Step[none, none]{Topic: "job.lane", Run: func(context.Context, *platform.Attempt, none) (none, error) { return none{}, nil }}
	w.host(step)
	w.becomes(w.submit("job.lane", `{}`, `{"scope": "org:a"}`), "SUCCEEDED")
	w.exec(`select pgmill.remove_lanes()`)
	if got := ask[string](w, `select coalesce(string_agg(mark::text, ' '), '') from pgmill.lane where mark < 0`); got != "" {
		t.Errorf("a lane that was used this hour is closed: mark %s", got)
	}
	later := w.submit("job.lane", `{}`, `{"scope": "org:a", "delay_ms": 3600000}`)
	w.laneless()
	w.becomes(w.submit("job.lane", `{}`, `{"scope": "org:a"}`), "SUCCEEDED")
	w.exec(`update pgmill.job_waiting set due_at = now() where job = $1`, later)
	w.becomes(later, "SUCCEEDED")
}

// What waits longest of a topic is found among the heads of its lanes.
func TestTheOldestReadyJobIsOfAnyLane(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const oldest = `select oldest_ready_seconds::int from mill.queue_depth where topic = 'job.lane'`
	for i, options := range []string{`{"scope": "org:a"}`, `{"scope": "org:b"}`, `{"priority": "batch"}`, `{"requires": ["gpu"]}`, `{"delay_ms": 3600000}`} {
		id := w.submit("job.lane", `{}`, options)
		w.submit("job.lane", `{}`, options)
		w.exec(`update pgmill.job_waiting set since = now() - $1 * interval '100 s' where job = $2`, i+1, id)
		if got, want := ask[int](w, oldest), 100*min(i+1, 4); got < want || got > want+60 {
			t.Errorf("after %s the oldest waits for %d s, want %d", options, got, want)
		}
	}
}

// A job whose transaction is open while its lane goes is not left behind, whenever in
// the lane's end it was submitted and however isolated its transaction is.
func TestJobOutlivesItsLane(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		for visits := range 4 {
			t.Run(fmt.Sprint(level, " after visit ", visits), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				w.exec(`insert into pgmill.instance (kind, id, ttl) values ('worker', 'me', '1 h')`)
				first := w.submit("job.lane", `{}`, `{}`)
				if got := ask[string](w, `select job from pgmill.admit('me', '{job.lane}', 1)`); got != first {
					t.Fatalf("admitted %s", got)
				}
				tx, err := w.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
				if err != nil {
					t.Fatal(err)
				}
				defer tx.Rollback(context.Background())
				if _, err := tx.Exec(t.Context(), `select count(*) from pgmill.lane`); err != nil { // its snapshot, if it keeps one
					t.Fatal(err)
				}
				for range visits {
					w.visit()
				}
				var id string
				if err := tx.QueryRow(t.Context(), `select mill.submit_job('job.lane')`).Scan(&id); err != nil {
					t.Fatal(err)
				}
				for range 4 {
					w.visit()
				}
				if err := tx.Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
				w.exec(`select pgmill.promote_jobs()`)
				if got := ask[string](w, `select coalesce(max(job), 'none') from pgmill.admit('me', '{job.lane}', 10)`); got != id {
					t.Errorf("admitted %s; want %s", got, id)
				}
				w.exec(`select pgmill.end_claims(array(select id from pgmill.river_job where queue = 'job'), null, null, null, array['{}', '{}']::jsonb[])`)
				w.laneless()
			})
		}
	}
}

// A lane's first two rows, of a submit and of a poll beside it, are both out of the way of
// who writes behind the one that is there.
func TestOpeningALaneTwiceIsInNobodysWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`insert into pgmill.instance (kind, id, ttl) values ('worker', 'me', '1 h')`)
	begin := func() pgx.Tx {
		tx, err := w.pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { tx.Rollback(context.Background()) })
		return tx
	}
	submit, poll, visit := begin(), begin(), begin()
	for _, q := range []struct {
		tx  pgx.Tx
		sql string
	}{
		{submit, `select mill.submit_job('job.lane', options => '{"scope": "org:a"}')`},
		{poll, `select pg_current_xact_id(), pgmill.open_lane('job.lane', 1::smallint, '', 'org:a', true)`},
		{submit, `commit`},
		{visit, `set local lock_timeout = '2 s'`},
		{visit, `select from pgmill.admit('me', '{job.lane}', 1)`},
	} {
		if _, err := q.tx.Exec(t.Context(), q.sql); err != nil {
			t.Fatalf("%s: %v", q.sql, err)
		}
	}
}

// Submitters race the removal, some of them roll back, and hosts: no job is left waiting
// without a lane, and in the end no lane is left.
func TestLanesAreRemovedUnderTraffic(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	step := platform.Step[none, none]{Topic: "job.lane", Run: func(context.Context, *platform.Attempt, none) (none, error) { return none{}, nil }}
	w.host(step)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var removers, submitters sync.WaitGroup
	for range 2 {
		removers.Go(func() {
			for ctx.Err() == nil {
				if _, err := w.pool.Exec(ctx, `select pgmill.remove_lanes('0 s')`); err != nil && ctx.Err() == nil {
					t.Errorf("visit: %v", err)
				}
			}
		})
	}
	refused := errors.New("rolled back")
	for range 6 {
		submitters.Go(func() {
			for i := range 60 {
				err := pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
					for range 1 + rand.IntN(3) {
						if _, err := tx.Exec(ctx, `select mill.submit_job('job.lane', options => jsonb_build_object('scope', 'org:' || $1::int))`, rand.IntN(4)); err != nil {
							return err
						}
					}
					if i%5 == 0 {
						return refused
					}
					return nil
				})
				if err != nil && !errors.Is(err, refused) {
					t.Errorf("submit: %v", err)
				}
			}
		})
	}
	submitters.Wait()
	platformtest.WaitWithin(t, w.pool, time.Minute, `select bool_and(state = 'SUCCEEDED') from pgmill.job`)
	platformtest.WaitWithin(t, w.pool, time.Minute, `select count(*) = 0 from pgmill.lane`)
	stop()
	removers.Wait()
}

// A job whose transaction had the last number of all when an admission looked is admitted
// once it commits: it is not below its lane's low by then.
func TestJobOfTheNewestTransactionIsNotPassedOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`insert into pgmill.instance (kind, id, ttl) values ('worker', 'me', '1 h')`)
	admitted := func() string {
		return ask[string](w, `select coalesce(string_agg(job, ' '), 'none') from pgmill.admit('me', '{job.lane}', 10)`)
	}
	for range 20 { // other databases' transactions end, too, and hide it
		first := w.submit("job.lane", `{}`, `{}`)
		tx, err := w.pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(context.Background())
		var open string
		if err := tx.QueryRow(t.Context(), `select mill.submit_job('job.lane')`).Scan(&open); err != nil {
			t.Fatal(err)
		}
		if got := admitted(); got != first {
			t.Fatalf("admitted %s; want %s", got, first)
		}
		if second := w.submit("job.lane", `{}`, `{}`); admitted() != second {
			t.Fatal("the second is not admitted")
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := admitted(); got != open {
			t.Fatalf("admitted %s; want %s, which waited for its commit", got, open)
		}
	}
}
