package faults_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgmill/pgmill/platform/platformtest"
	"github.com/pgmill/pgmill/platform/platformtest/fault"
)

// F14, F33, F34, F36, F41, F46 for jobs: hosts are killed, told to stop, paused and cut
// off at random while jobs are submitted, some of them rolled back, late, flaky, keyed,
// unique, limited by a rate or their scope, for an outside worker, or cancelled. Each is done
// once or cancelled, none has two owners, none that has ended is written again, no limit is
// passed, and whatever waits says why.
func TestStormOfJobs(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute; run it without -short")
	}
	b := newJobBed(t) // not in parallel: it needs the whole machine
	d, rate, lease, patience := 15*time.Second, 50, ttl, time.Minute
	if soaking() {
		d, rate, lease, patience = 10*time.Minute, 200, 5*time.Second, 5*time.Minute
	}
	keyed := step{Topic: "job.t.keyed", PerKey: 1}
	steps := []step{inside, outside, keyed, {Topic: "job.t.rated", Outside: true, Rate: rate / 6}}
	const most = 4
	b.exec("select mill.limit_scope('org:0', $1)", most)
	var slots []*slot
	for range 3 {
		w := fault.NewWire(t, b.dsn)
		slots = append(slots, &slot{wire: w, lease: lease, fleet: b.keep(1, hostOptions{Steps: steps, DSN: w.DSN, Args: []string{fmt.Sprint("--lease-ttl=", lease)}})})
	}
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	var storm sync.WaitGroup
	struck := map[string]int{}
	storm.Go(func() {
		for pause(ctx, time.Second+rand.N(time.Second)) == nil {
			struck[slots[rand.IntN(len(slots))].strike()]++
		}
	})
	worked := step{Topic: "job.t.worked", Outside: true}
	storm.Go(func() { b.orders(ctx, append(steps, worked), rate) })
	watching, stop := context.WithCancel(t.Context())
	defer stop()
	var watch sync.WaitGroup
	why := map[string]time.Duration{}
	watch.Go(func() { b.why(watching, why) })
	watch.Go(func() { b.worker(watching, worked.Topic) })
	storm.Wait()
	for _, s := range slots {
		s.wire.Mend()
	}
	platformtest.WaitWithin(t, b.db, patience, sqlEnded)
	stop()
	watch.Wait()
	b.allOnce()
	b.atOnce("org:0", most)
	t.Logf("%d jobs, %d cancelled; %v; deaths %d; longest waits by reason: %v", ask[int](b, "select count(*) from wanted"), ask[int](b, "select count(*) from pgmill.job where state = 'CANCELLED'"),
		struck, slots[0].fleet.died()+slots[1].fleet.died()+slots[2].fleet.died(), why)
	for reason, longest := range why {
		most, ok := waits[reason]
		if soaking() {
			most *= 10 // more may be submitted than a small machine can do
		}
		if !ok || longest > most {
			t.Errorf("a job was seen waiting for %v with reason %q; want at most %v", longest, reason, most)
		}
	}
	if got := b.list("select format('%s waits: %s', id, reason) from mill.why_not_running union all select format('%s is stuck: %s', id, reason) from mill.stuck union all select format('%s is taken', key) from pgmill.job_unique"); got != "" {
		t.Errorf("in the end:\n%s", got)
	}
}

// waits are the reasons that a job may wait for in a storm, and how long one may be seen
// with it: three hosts may all be away at once.
var waits = map[string]time.Duration{
	"queued":               30 * time.Second,
	"pool_overloaded":      30 * time.Second,
	"no_live_host":         30 * time.Second,
	"no_pool_mapping":      10 * time.Second, // until the first host has said what it can do
	"key_limit":            time.Minute,      // each in turn
	"tenant_limit":         time.Minute,
	"topic_limit":          30 * time.Second,
	"worker.tired":         3 * time.Second,
	"scheduled":            3 * time.Second,
	"handler_error":        3 * time.Second, // that and the others: until the next attempt
	"host_lost":            3 * time.Second,
	"lease_lost":           3 * time.Second,
	"commit_failed":        3 * time.Second,
	"conflict":             3 * time.Second,
	"database_unreachable": 3 * time.Second,
}

// slot is a place for one host, with a way of its own to the database.
type slot struct {
	wire  *fault.Wire
	lease time.Duration
	fleet *fleet
}

// strike does something to the slot's host and answers what; it returns when that is over.
func (s *slot) strike() string {
	p := s.fleet.some(0)
	if p == nil {
		return "between hosts"
	}
	away := s.lease/2 + rand.N(s.lease)
	switch rand.IntN(6) {
	case 0, 1:
		p.kill()
		return "kill -9"
	case 2:
		p.signal(syscall.SIGTERM)
		return "SIGTERM"
	case 3:
		p.pause()
		<-time.After(away) // the fault itself
		p.resume()
		return "SIGSTOP"
	case 4:
		s.wire.Freeze()
		<-time.After(away)
		s.wire.Mend()
		return "partition"
	default:
		s.wire.Forget()
		return "connections lost"
	}
}

// orders submits jobs of every kind at a rate until ctx ends, a few in each transaction,
// and cancels some.
func (b *bed) orders(ctx context.Context, steps []step, rate int) {
	refused := errors.New("rolled back")
	began, n := time.Now(), 0
	for pause(ctx, 50*time.Millisecond) == nil {
		batch, cancelled := &pgx.Batch{}, []int{}
		for most := n + rate; n < most && n < int(time.Since(began).Seconds()*float64(rate)); n++ {
			s := steps[rand.IntN(len(steps))]
			unique := ""
			if rand.IntN(10) == 0 {
				unique = fmt.Sprintf(`, "unique_key": "u%d"`, rand.IntN(3))
			}
			options := fmt.Sprintf(`{"scope": "org:%d", "priority": %q, "key": "k%d", "delay_ms": %d, "max_attempts": 100%s}`,
				rand.IntN(5), []string{"critical", "interactive", "batch"}[rand.IntN(3)], rand.IntN(40), max(0, rand.IntN(8000)-7000), unique)
			in := fmt.Sprintf(`{"millis": %d, "flaky": %v}`, rand.IntN(300), rand.IntN(20) == 0)
			cancel := rand.IntN(25) == 0
			if cancel {
				cancelled = append(cancelled, n)
			}
			batch.Queue(sqlOrder, n, s.Topic, in, options, s.Outside, cancel)
		}
		err := pgx.BeginFunc(b.Context(), b.db, func(tx pgx.Tx) error {
			err := tx.SendBatch(b.Context(), batch).Close()
			if err == nil && rand.IntN(20) == 0 {
				return refused
			}
			return err
		})
		if err == nil {
			_, err = b.db.Exec(b.Context(), `select mill.cancel(job) from wanted where n = any ($1)`, cancelled)
		}
		if err != nil && !errors.Is(err, refused) {
			b.Errorf("submit and cancel: %v", err)
			return
		}
	}
}

// worker does the jobs of a topic as a program outside would, by SQL, until ctx ends. One
// in five it gives back, fails or forgets until the lease is over.
func (b *bed) worker(ctx context.Context, topic string) {
	type claimed struct {
		Job, Token string
		N          int64
	}
	for pause(ctx, 50*time.Millisecond) == nil {
		rows, err := b.db.Query(b.Context(), "select job_id, token, (input ->> 'n')::bigint from mill.claim_jobs('w1', array[$1], 10, 2)", topic)
		if err != nil {
			b.Errorf("claim: %v", err)
			return
		}
		jobs, err := pgx.CollectRows(rows, pgx.RowToStructByPos[claimed])
		for i := 0; err == nil && i < len(jobs); i++ {
			var calls int
			if err = b.db.QueryRow(b.Context(), sqlCalled, jobs[i].N).Scan(&calls); err != nil {
				break
			}
			end := "select mill.complete_job($1, $2)"
			switch rand.IntN(15) + 15*calls { // the first time only: it rests longer and longer
			case 0:
				continue
			case 1:
				end = "select mill.release_job($1, $2)"
			case 2:
				end = "select mill.fail_job($1, $2, 'worker.tired')"
			default:
				_, err = b.db.Exec(b.Context(), "insert into sent (key) values ($1) on conflict do nothing", jobs[i].Job)
			}
			var refused *pgconn.PgError
			if _, lost := b.db.Exec(b.Context(), end, jobs[i].Job, jobs[i].Token); !errors.As(lost, &refused) || refused.Code != "MI101" {
				err = errors.Join(err, lost)
			}
		}
		if err != nil {
			b.Errorf("worker: %v", err)
			return
		}
	}
}

// atOnce checks that no more jobs of a scope ran at once than may, as far as attempts are noted.
func (b *bed) atOnce(scope string, most int) {
	b.Helper()
	if got := b.list(`
		with ran as (
		    select a.job, a.started_at, a.ended_at from pgmill.job_attempt a join pgmill.job j on j.id = a.job where j.scope = $1 and a.started_at is not null
		    union all select id, started_at, finished_at from pgmill.job where scope = $1 and state = 'SUCCEEDED'
		)
		select format('%s ran at %s', count(*), a.started_at)
		from ran a join ran o on o.started_at <= a.started_at and a.started_at < o.ended_at
		group by a.job, a.started_at
		having count(*) > $2
		limit 10`, scope, most); got != "" {
		b.Errorf("of %s may run %d:\n%s", scope, most, got)
	}
}

// why notes, until ctx ends, for how long jobs were seen to wait with each reason at most,
// and that each that waits has one.
func (b *bed) why(ctx context.Context, longest map[string]time.Duration) {
	since := map[string]time.Time{}
	for pause(ctx, time.Second) == nil {
		rows, err := b.db.Query(b.Context(), `
			select coalesce(w.job, y.id), coalesce(y.reason, 'none'), count(*) from pgmill.job_waiting w
			  full join (select id, reason from mill.why_not_running where kind = 'job') y on y.id = w.job
			 group by 1, 2`)
		if err != nil {
			b.Errorf("why: %v", err)
			return
		}
		var job, reason string
		var n int
		now, seen := time.Now(), map[string]bool{}
		if _, err := pgx.ForEachRow(rows, []any{&job, &reason, &n}, func() error {
			if n != 1 {
				b.Errorf("job %s has %d rows in mill.why_not_running", job, n)
			}
			k := reason + " " + job
			if since[k].IsZero() {
				since[k] = now
			}
			seen[k] = true
			longest[reason] = max(longest[reason], now.Sub(since[k]).Round(time.Millisecond))
			return nil
		}); err != nil {
			b.Errorf("why: %v", err)
		}
		maps.DeleteFunc(since, func(k string, _ time.Time) bool { return !seen[k] })
	}
}
