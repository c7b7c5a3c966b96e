package claim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
)

const (
	schema = "pgmill"
	// Queue is where claims of subscription shards wait for a host.
	Queue = "subscription"
	// JobQueue is where claims of jobs are; they are born running (see Source).
	JobQueue = "job"
	// pollInterval is River's own poll: a net under our bell and our poll.
	pollInterval = 5 * time.Second
	fetchPause   = time.Millisecond
	// fetchPatience is how long one fetch may take.
	fetchPatience = 5 * time.Second
)

// Claim is the right of this host to work on something now. Its id is the fence.
type Claim struct {
	ID   int64
	Kind string
	Args json.RawMessage
}

// Work works on one claim until it has given it back or lost it. ctx ends when the
// host's grace is over.
type Work func(ctx context.Context, c Claim)

// Source makes claims when River asks for them, instead of rows that wait: they are
// born running and this host's. Fetch answers at most max.
type Source struct {
	Slots int // how many are worked on at once
	Work  map[string]Work
	Fetch func(ctx context.Context, max int) ([]Claim, error)
}

// Claims fetches claims of the kinds it has work for and runs each in a goroutine.
type Claims struct {
	Pool       *pgxpool.Pool // River's; a few connections are enough
	Instance   string        // the lease's id; River's client id
	Work       map[string]Work
	MaxWorkers int
	Jobs       *Source // nil: none
	Log        *slog.Logger
	// Panicked hears of a panic that escaped the work itself; may be nil.
	Panicked func(kind string, value any)

	driver *driver
	client *river.Client[pgx.Tx]
	mu     sync.Mutex
	known  map[int64]struct{}
}

// Start begins to fetch, if there is work that claims are for.
func (c *Claims) Start(ctx context.Context) error {
	c.known = map[int64]struct{}{}
	c.driver = newDriver(c.Pool)
	workers := river.NewWorkers()
	queues := map[string]river.QueueConfig{}
	if len(c.Work) > 0 {
		queues[Queue] = river.QueueConfig{MaxWorkers: c.MaxWorkers}
	}
	for kind, work := range c.Work {
		river.AddWorkerArgs(workers, args{kind: kind}, worker{work: c.guard(work)})
	}
	if c.Jobs != nil && len(c.Jobs.Work) > 0 {
		queues[JobQueue] = river.QueueConfig{MaxWorkers: c.Jobs.Slots}
		c.driver.jobs, c.driver.pace = c.Jobs, newPace(c.Jobs.Slots)
		for kind, work := range c.Jobs.Work {
			guarded := c.guard(work)
			river.AddWorkerArgs(workers, args{kind: kind}, worker{work: func(ctx context.Context, claim Claim) {
				defer c.driver.pace.ended()
				guarded(ctx, claim)
			}})
		}
	}
	if len(queues) == 0 {
		return nil
	}
	client, err := river.NewClient(c.driver, &river.Config{
		ID:                     c.Instance,
		Schema:                 schema,
		Workers:                workers,
		Queues:                 queues,
		FetchCooldown:          fetchPause,
		FetchPollInterval:      pollInterval,
		FetchOnlyKnownKinds:    true, // an unknown function's claim waits for a host that has it (F35)
		LeaderElectionDisabled: true, // no rescuer, scheduler, cleaner or reindexer
		JobTimeout:             -1,   // the function's timeout is ours to keep
		MaxAttempts:            1,
		Logger:                 slog.New(slog.DiscardHandler), // its texts may carry arguments; what matters we log
		SkipUnknownJobCheck:    true,
	})
	if err != nil {
		return fmt.Errorf("river client: %w", err)
	}
	c.client = client
	return client.Start(ctx)
}

// Ring makes River look for claims of shards now; it never blocks.
func (c *Claims) Ring() { c.driver.ring(Queue) }

// RingJobs makes it look for jobs.
func (c *Claims) RingJobs() { c.driver.ring(JobQueue) }

// Known lists the claims being worked on.
func (c *Claims) Known() []int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.known))
}

// Stop stops fetching and waits for the work under way; when ctx ends first, the
// work's contexts are cancelled and it waits for their return for a moment more.
func (c *Claims) Stop(ctx context.Context) error {
	if c.client == nil {
		return nil
	}
	err := c.client.Stop(ctx)
	if err == nil || errors.Is(err, context.Canceled) && ctx.Err() == nil {
		return nil
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := c.client.StopAndCancel(last); err != nil {
		return fmt.Errorf("handlers still run after the grace time: %w", err)
	}
	return nil
}

func (c *Claims) guard(work Work) Work {
	return func(ctx context.Context, claim Claim) {
		c.mu.Lock()
		c.known[claim.ID] = struct{}{}
		c.mu.Unlock()
		defer func() {
			if v := recover(); v != nil && c.Panicked != nil {
				c.Panicked(claim.Kind, v)
			}
			c.mu.Lock()
			delete(c.known, claim.ID)
			c.mu.Unlock()
		}()
		work(ctx, claim)
	}
}
