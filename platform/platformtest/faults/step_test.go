package faults_test

import (
	"cmp"
	"context"
	"errors"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/platformtest/fault"
)

// step is a step whose handler does a task, in a transaction or outside one.
type step struct {
	Topic    string
	Outside  bool
	Attempts int // 0: 100
	PerKey   int
	Rate     int
}

// task is what a job's input asks of its step.
type task struct {
	N      int64  `json:"n"`
	Millis int    `json:"millis,omitempty"` // take so long
	Once   bool   `json:"once,omitempty"`   // but only the first time
	Spin   int    `json:"spin,omitempty"`   // milliseconds of all processors
	Gate   string `json:"gate,omitempty"`   // wait until this gate is open
	Deaf   bool   `json:"deaf,omitempty"`   // do not hear the context while waiting
	Flaky  bool   `json:"flaky,omitempty"`  // fail the first time
	Die    bool   `json:"die,omitempty"`    // kill the host in the end
}

func (s step) register(side *pgxpool.Pool) {
	const backoff, most, timeout = 50 * time.Millisecond, time.Second, time.Minute
	attempts := cmp.Or(s.Attempts, 100)
	if s.Outside {
		platform.Register(platform.Step[task, struct{}]{Topic: s.Topic, MaxAttempts: attempts, Backoff: backoff, BackoffMax: most, Timeout: timeout, PerKey: s.PerKey, Rate: s.Rate,
			Run: func(ctx context.Context, a *platform.Attempt, in task) (struct{}, error) {
				if err := in.do(ctx, side); err != nil {
					return struct{}{}, err
				}
				_, err := side.Exec(ctx, "insert into sent (key) values ($1) on conflict do nothing", a.Key) // what is outside knows the key
				return struct{}{}, err
			}})
		return
	}
	platform.Register(platform.Step[task, struct{}]{Topic: s.Topic, MaxAttempts: attempts, Backoff: backoff, BackoffMax: most, Timeout: timeout, PerKey: s.PerKey, Rate: s.Rate,
		Handle: func(ctx context.Context, tx pgx.Tx, in task) (struct{}, error) {
			if _, err := tx.Exec(ctx, "insert into made (n) values ($1)", in.N); err != nil {
				return struct{}{}, err
			}
			return struct{}{}, in.do(ctx, side)
		}})
}

// sqlCalled notes that a job's handler was called, and answers how many times before.
const sqlCalled = `with called as (insert into did (n) values ($1) returning n) select (select count(*) from did d where d.n = called.n) from called`

// do notes on a connection of its own that it was called, and that its context has
// ended if it has, and does what is asked.
func (in task) do(ctx context.Context, side *pgxpool.Pool) error {
	var calls int
	if err := side.QueryRow(ctx, sqlCalled, in.N).Scan(&calls); err != nil {
		return err
	}
	if in.Flaky && calls == 0 {
		return errors.New("refused")
	}
	if in.Once && calls > 0 {
		in.Millis = 0
	}
	if in.Deaf {
		ctx = context.WithoutCancel(ctx)
	}
	err := in.take(ctx, side)
	if ctx.Err() != nil {
		_, _ = side.Exec(context.WithoutCancel(ctx), "insert into heard (n) values ($1)", in.N)
	}
	if in.Die && err == nil {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	return err
}

// take takes the time that is asked for.
func (in task) take(ctx context.Context, side *pgxpool.Pool) error {
	for open := in.Gate == ""; !open; {
		if err := side.QueryRow(ctx, "select exists (select from gate where name = $1)", in.Gate).Scan(&open); err != nil {
			return err
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
	end := time.Now().Add(time.Duration(in.Spin) * time.Millisecond)
	var group sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for time.Now().Before(end) && ctx.Err() == nil {
			}
		})
	}
	group.Wait()
	return pause(ctx, time.Duration(in.Millis)*time.Millisecond)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// newJobBed is a bed with the tables that steps write. touched has every write to a job
// that had ended.
func newJobBed(t *testing.T) *bed {
	t.Helper()
	b := newBed(t)
	b.exec(`create table did (n bigint, at timestamptz default clock_timestamp());
		create index on did (n);
		create table made (n bigint);
		create index on made (n);
		create table sent (key text primary key);
		create table heard (n bigint, at timestamptz default clock_timestamp());
		create table wanted (n bigint, job text, outside boolean, cancel boolean, ends text default 'SUCCEEDED');
		create index on wanted (job);
		create table touched (job text, was text, is_now text);
		create function touch() returns trigger language plpgsql as $$ begin insert into public.touched values (old.id, old::text, new::text); return null; end $$;
		create trigger touch after update on pgmill.job for each row when (old.state <> 'PENDING') execute function touch()`)
	return b
}

var inside, outside = step{Topic: "job.t.inside"}, step{Topic: "job.t.outside", Outside: true}

// sqlOrder submits a job and notes that it is wanted, unless there is one of its unique
// key, in one statement.
const sqlOrder = `with job as materialized (select mill.submit_job($2, $3::text::jsonb || jsonb_build_object('n', $1::bigint), $4::text::jsonb) as id)
	insert into wanted select $1, id, $5, $6 from job where not exists (select from wanted w where w.job = job.id)`

func (b *bed) order(n int, s step, in, options string) {
	b.Helper()
	b.exec(sqlOrder, n, s.Topic, in, options, s.Outside, false)
}

// allOnce checks the wanted jobs once all have ended: none lost, each effect once, no
// attempt before the end of the one before, and no ended job written again.
func (b *bed) allOnce() {
	b.Helper()
	for what, query := range map[string]string{
		"lost or made twice": `
			select format('job %s (%s, cancelled: %s) is %s (%s), made %s times, sent: %s', w.job, j.topic, w.cancel, j.state, j.reason, m.n, s.is)
			from wanted w left join pgmill.job j on j.id = w.job
			cross join lateral (select count(*) as n from made where n = w.n) m
			cross join lateral (select exists (select from sent where key = w.job) as is) s
			where (j.state = w.ends or j.state = 'CANCELLED' and w.cancel) is not true
			   or m.n <> (j.state = 'SUCCEEDED' and not w.outside)::int
			   or j.state = 'SUCCEEDED' and w.outside and not s.is`,
		"never ordered": `select j.id from pgmill.job j where not exists (select from wanted w where w.job = j.id)`,
		"had by two at once": `
			select format('job %s: attempt %s began %s, attempt %s ended %s', job, attempt, started_at, before, ended)
			from (select job, attempt, started_at, lag(attempt) over w as before, lag(ended_at) over w as ended
			        from (select job, attempt, started_at, ended_at from pgmill.job_attempt where started_at is not null
			              union all select id, attempt, started_at, finished_at from pgmill.job where state = 'SUCCEEDED') a
			      window w as (partition by job order by attempt, started_at)) x
			where started_at < ended or attempt = before`,
		"written after its end": `select format('%s became %s', was, is_now) from touched`,
	} {
		if got := b.list(query + " limit 10"); got != "" {
			b.Errorf("%s:\n%s", what, got)
		}
	}
}

// F38 for jobs: a host that is killed and started again is another instance; the jobs
// that it had are claimable within its lease and a second, and each is done once.
func TestF38RestartedHostDoesNotOwnItsJobs(t *testing.T) {
	t.Parallel()
	b := newJobBed(t)
	o := hostOptions{Steps: []step{inside, outside}}
	h1 := b.start(o)
	for i := range 20 {
		b.order(i, []step{inside, outside}[i%2], `{"gate": "go"}`, `{}`)
	}
	b.wait("select count(*) = 20 from did")
	other := b.start(o)
	b.wait("select clock_timestamp() - since > ttl from pgmill.instance where id = $1", other.ID) // it may rescue
	killed := ask[time.Time](b, "select clock_timestamp()")
	h1.kill()
	again := b.start(o)
	if again.ID == h1.ID {
		t.Errorf("both are %s", h1.ID)
	}
	b.exec("insert into gate values ('go')")
	b.endedJobs()
	b.takenBack(20, killed, h1.ID)
	b.allOnce()
}

// F38: the way of a host to the database is gone half open, in both directions, with
// jobs in its hands. They are claimable within its lease and a second, and what it still
// has to say of them when the way is back changes nothing.
func TestF38JobsOfAHostBehindADeadConnection(t *testing.T) {
	t.Parallel()
	b := newJobBed(t)
	wire := fault.NewWire(t, b.dsn)
	o := hostOptions{Steps: []step{inside, outside}, DSN: wire.DSN}
	h1 := b.start(o)
	for i := range 20 {
		b.order(i, []step{inside, outside}[i%2], `{"gate": "go"}`, `{}`)
	}
	b.wait("select count(*) = 20 from did")
	o.DSN = ""
	h2 := b.start(o)
	b.wait("select clock_timestamp() - since > ttl from pgmill.instance where id = $1", h2.ID)
	cut := ask[time.Time](b, "select clock_timestamp()")
	wire.Freeze()
	b.exec("insert into gate values ('go')")
	b.endedJobs()
	b.takenBack(20, cut, h1.ID)
	wire.Mend()
	b.wait("select live from mill.instances where id = $1", h1.ID)
	b.order(20, inside, `{}`, `{}`)
	b.endedJobs()
	b.allOnce()
	if got := b.list("select instance from pgmill.job where instance = $1 and attempt > 0 and id in (select job from wanted where n < 20)", h1.ID); got != "" {
		t.Errorf("jobs that were taken from it are the cut off host's: %s", got)
	}
}

// sqlEnded answers true once every job has ended.
const sqlEnded = "select not exists (select from pgmill.job where state in ('PENDING', 'APPROVAL_REQUIRED'))"

func (b *bed) endedJobs() {
	b.Helper()
	b.wait(sqlEnded)
}

// takenBack checks that n jobs were taken from a host within its lease and a second.
func (b *bed) takenBack(n int, since time.Time, from string) {
	b.Helper()
	var got int
	var took float64
	if err := b.db.QueryRow(b.Context(), `select count(distinct job), coalesce(extract(epoch from max(ended_at) - $1), 0)::float8 from pgmill.job_attempt where instance = $2 and reason = 'host_lost'`,
		since, from).Scan(&got, &took); err != nil {
		b.Fatal(err)
	}
	if limit := (ttl + time.Second).Seconds(); got != n || took > limit {
		b.Errorf("%d jobs were claimable again, the last after %.2f s; want %d within %.1f s", got, took, n, limit)
	}
}
