package claim_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/pgmill/pgmill/platform/internal/claim"
	"github.com/pgmill/pgmill/platform/platformtest"
)

// probe is a River worker of a kind that ends as a test says.
type probe struct {
	river.WorkerDefaults[probeArgs]
	started chan int64
	end     chan func() error
}

type probeArgs struct{}

func (probeArgs) Kind() string { return "probe" }

func (p probe) Work(_ context.Context, job *river.Job[probeArgs]) error {
	p.started <- job.ID
	return (<-p.end)()
}

// TestRiverContract is what river.go promises of River v0.51.2, whatever a worker
// does; the stock driver beside it shows that each promise is needed.
func TestRiverContract(t *testing.T) {
	t.Parallel()
	returns := []struct {
		name string
		end  func() error
	}{
		{"nil", func() error { return nil }},
		{"an error", func() error { return errors.New("C4NARY") }},
		{"a snooze", func() error { return river.JobSnooze(time.Hour) }},
		{"a cancel", func() error { return river.JobCancel(errors.New("C4NARY")) }},
		{"a panic", func() error { panic("C4NARY") }},
	}
	for _, tt := range returns {
		t.Run(tt.name+" of a stale worker leaves the next owner's row alone", func(t *testing.T) {
			t.Parallel()
			pool := platformtest.DB(t)
			driver, ring := claim.NewDriver(pool)
			if before, after := staleReturn(t, pool, driver, ring, tt.end); before != after {
				t.Errorf("the row was\n%s\nand is\n%s", before, after)
			}
			exec(t, pool, `delete from pgmill.river_job`)
		})
		t.Run(tt.name+" with the stock driver rewrites it", func(t *testing.T) {
			t.Parallel()
			pool := platformtest.DB(t)
			if before, after := staleReturn(t, pool, riverpgxv5.New(pool), func() {}, tt.end); before == after {
				t.Error("the row is as it was: has River learned to fence? Then river.go can shrink")
			}
			exec(t, pool, `delete from pgmill.river_job`)
		})
	}
}

// staleReturn lets a worker fetch a claim, gives its row to another owner, lets the
// worker return and stops its client. It answers the row before and after.
func staleReturn(t *testing.T, pool *pgxpool.Pool, driver riverdriver.Driver[pgx.Tx], ring func(), end func() error) (before, after string) {
	t.Helper()
	p := probe{started: make(chan int64, 1), end: make(chan func() error, 1)}
	workers := river.NewWorkers()
	river.AddWorker(workers, p)
	client, err := river.NewClient(driver, &river.Config{ID: "stale", Schema: "pgmill", Workers: workers, LeaderElectionDisabled: true, MaxAttempts: 1,
		Queues: map[string]river.QueueConfig{claim.Queue: {MaxWorkers: 1}}, FetchCooldown: time.Millisecond, FetchPollInterval: 50 * time.Millisecond,
		JobTimeout: -1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Start(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	id := put(t, pool, "probe")
	ring()
	hears(t, "the fetch", p.started)
	exec(t, pool, `update pgmill.river_job set attempted_by = '{next}', attempted_at = now() where id = $1`, id)
	const row = `select to_jsonb(j)::text from pgmill.river_job j where id = $1`
	before = one[string](t, pool, row, id)
	p.end <- end
	stop, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := client.Stop(stop); err != nil { // flushes what was completed
		t.Fatalf("stop: %v", err)
	}
	return before, one[string](t, pool, row, id)
}

// start runs claims of one kind, "known", until the test ends.
func start(t *testing.T, pool *pgxpool.Pool, max int, work claim.Work) *claim.Claims {
	t.Helper()
	c := &claim.Claims{Pool: pool, Instance: "me", Work: map[string]claim.Work{"known": work}, MaxWorkers: max, Log: slog.New(slog.DiscardHandler)}
	if err := c.Start(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := c.Stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return c
}

// release ends a claim as a settle does.
func release(t *testing.T, pool *pgxpool.Pool, id int64) {
	if _, err := pool.Exec(context.Background(), `select pgmill.release_claim($1)`, id); err != nil {
		t.Errorf("release: %v", err)
	}
}

// TestRiverContract: a ring starts the work within milliseconds, and so does a
// second one 50 ms later, for which River's own limiter would wait for its poll
// (p50 540 ms).
func TestRiverContractRingStartsAtOnce(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	began := make(chan time.Time, 1)
	c := start(t, pool, 4, func(_ context.Context, c claim.Claim) {
		began <- time.Now()
		release(t, pool, c.ID)
	})
	var took []time.Duration
	gap := time.NewTicker(50 * time.Millisecond)
	defer gap.Stop()
	for range 21 {
		put(t, pool, "known")
		rung := time.Now()
		c.Ring()
		took = append(took, hears(t, "the work", began).Sub(rung))
		<-gap.C
	}
	slices.Sort(took)
	t.Logf("ring to start: p50 %v, worst %v", took[10], took[20])
	if took[10] > 100*time.Millisecond {
		t.Errorf("half of the rings took over %v", took[10])
	}
}

// N26: what no ring told of is found by River's own poll.
func TestRiverContractPollFindsWhatNoRingTold(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	began := make(chan int64, 1)
	start(t, pool, 1, func(_ context.Context, c claim.Claim) {
		began <- c.ID
		release(t, pool, c.ID)
	})
	put(t, pool, "known")
	hears(t, "the first", began)
	id, at := put(t, pool, "known"), time.Now()
	if got := hears(t, "the second", began); got != id {
		t.Errorf("claim %d, want %d", got, id)
	}
	if took := time.Since(at); took > claim.PollInterval+3*time.Second {
		t.Errorf("found after %v; the poll is each %v", took, claim.PollInterval)
	}
}

// F35: a kind that this host has no work for waits, untouched, for one that has.
func TestRiverContractUnknownKindIsNotFetched(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	began := make(chan claim.Claim, 1)
	c := start(t, pool, 4, func(_ context.Context, c claim.Claim) {
		began <- c
		release(t, pool, c.ID)
	})
	unknown := put(t, pool, "unknown")
	known := put(t, pool, "known") // behind it in the queue
	c.Ring()
	got := hears(t, "the known one", began)
	if got.ID != known || got.Kind != "known" || !json.Valid(got.Args) || string(got.Args) != `{"n": 1}` {
		t.Errorf("claim %+v, args %s", got, got.Args)
	}
	if s := one[string](t, pool, `select state::text || attempt from pgmill.river_job where id = $1`, unknown); s != "available0" {
		t.Errorf("the unknown kind is %s, want available0", s)
	}
}

// River has no leader, no scheduler, no cleaner here, and leaves no error text.
func TestRiverContractNothingElseRuns(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	panics := make(chan any, 1)
	c := &claim.Claims{Pool: pool, Instance: "me", MaxWorkers: 1, Log: slog.New(slog.DiscardHandler),
		Work:     map[string]claim.Work{"known": func(context.Context, claim.Claim) { panic("C4NARY") }},
		Panicked: func(kind string, v any) { panics <- v }}
	if err := c.Start(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	id := put(t, pool, "known")
	exec(t, pool, `insert into pgmill.river_job (args, kind, queue, max_attempts, state, finalized_at) values ('{}', 'old', 'subscription', 1, 'completed', now() - interval '1 year')`)
	c.Ring()
	if v := hears(t, "the panic", panics); v != "C4NARY" {
		t.Errorf("Panicked heard %v", v)
	}
	for range 20 { // a client that may lead asks at its start and leaves no trace when it stops
		if n := one[int](t, pool, `select count(*) from pgmill.river_leader`); n != 0 {
			t.Fatalf("%d leaders", n)
		}
		<-time.After(50 * time.Millisecond)
	}
	if err := c.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if s := one[string](t, pool, `select state || ' ' || coalesce(array_length(errors, 1), 0) from pgmill.river_job where id = $1`, id); s != "running 0" {
		t.Errorf("after a panic the row is %s errors, want running 0: only its owner's lease decides", s)
	}
	if n := one[int](t, pool, `select count(*) from pgmill.river_job where kind = 'old'`); n != 1 {
		t.Error("an old row was cleaned: River's maintenance runs")
	}
	exec(t, pool, `delete from pgmill.river_job`)
}

// No more work than allowed at a time; Known is what runs.
func TestClaimsAreBoundedAndKnown(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	began, goOn := make(chan int64, 10), make(chan struct{})
	var now, tooMany atomic.Int32
	c := start(t, pool, 2, func(_ context.Context, c claim.Claim) {
		if now.Add(1) > 2 {
			tooMany.Add(1)
		}
		began <- c.ID
		<-goOn
		now.Add(-1)
		release(t, pool, c.ID)
	})
	var ids []int64
	for range 5 {
		ids = append(ids, put(t, pool, "known"))
	}
	c.Ring()
	running := []int64{hears(t, "one", began), hears(t, "two", began)}
	known := c.Known()
	slices.Sort(known)
	slices.Sort(running)
	if !slices.Equal(known, running) {
		t.Errorf("known %v, running %v", known, running)
	}
	close(goOn)
	for range len(ids) - 2 {
		hears(t, "the rest", began)
	}
	if tooMany.Load() > 0 {
		t.Error("more than two at a time")
	}
	platformtest.WaitFor(t, pool, `select not exists (select from pgmill.river_job)`)
}

// F46: Stop waits for the work under way; when its time is over it ends the work's
// context and waits a moment more; work that ignores that is named.
func TestStopHandsBack(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		grace   time.Duration
		obeys   bool // returns when its context ends
		goOn    bool // returns by itself
		wantErr bool
	}{
		{name: "work that finishes in time", grace: patience, goOn: true},
		{name: "work that outlasts the grace and gives up", grace: 100 * time.Millisecond, obeys: true},
		{name: "work that never ends", grace: 100 * time.Millisecond, wantErr: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := platformtest.DB(t)
			began, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			c := &claim.Claims{Pool: pool, Instance: "me", MaxWorkers: 1, Log: slog.New(slog.DiscardHandler),
				Work: map[string]claim.Work{"known": func(ctx context.Context, c claim.Claim) {
					close(began)
					if tt.obeys {
						<-ctx.Done()
					} else {
						<-goOn
					}
					ended <- ctx.Err()
					release(t, pool, c.ID)
				}}}
			if err := c.Start(context.WithoutCancel(t.Context())); err != nil {
				t.Fatal(err)
			}
			put(t, pool, "known")
			c.Ring()
			hears(t, "the work", began)
			ctx, cancel := context.WithTimeout(t.Context(), tt.grace)
			defer cancel()
			stopped := make(chan error, 1)
			go func() { stopped <- c.Stop(ctx) }()
			if tt.goOn {
				close(goOn)
			}
			if err := hears(t, "Stop", stopped); (err != nil) != tt.wantErr {
				t.Errorf("Stop = %v; want error %v", err, tt.wantErr)
			}
			if tt.wantErr {
				close(goOn)
			}
			if err := hears(t, "the end of the work", ended); (err == nil) != tt.goOn {
				t.Errorf("the work's context at its end: %v", err)
			}
			platformtest.WaitFor(t, pool, `select not exists (select from pgmill.river_job)`)
		})
	}
}
