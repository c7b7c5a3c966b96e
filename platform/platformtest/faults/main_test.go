// Package faults_test runs real hosts, processes of this test binary, and breaks
// them: kill -9, SIGSTOP and back, terminated sessions, fail points, poison, a full
// pool. Each test ends with: nothing lost, each effect once, keys in order.
//
// PGMILL_SOAK=1 runs the long forms.
package faults_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/host"
)

// hostEnv holds a plan: with it this binary is a host.
const hostEnv = "FAULTS_HOST"

func TestMain(m *testing.M) {
	if plan := os.Getenv(hostEnv); plan != "" {
		if err := hostMain(plan); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(99)
		}
	}
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f != nil && f.Value.String() == f.DefValue {
		_ = f.Value.Set("5") // they wait for leases more than they compute
	}
	code := m.Run()
	if buildDir != "" {
		_ = os.RemoveAll(buildDir)
	}
	os.Exit(code)
}

// soaking reports whether the long forms are wanted.
func soaking() bool { return os.Getenv("PGMILL_SOAK") != "" }

// plan is what a host process runs.
type plan struct {
	Subs      []sub
	Schedules []timed
	Steps     []step
	Noted     []string // topics
	Rate      int
	Args      []string // flags of host worker
}

// timed is a schedule with the handler act.
type timed struct {
	Name, Cron string
}

// work is what a job is given.
type work struct {
	Name string `json:"name"`
}

// sub is a subscription with the handler act.
type sub struct {
	Name     string
	Events   string
	Shards   int
	Attempts int
	Batch    int
	Park     bool
	Timeout  time.Duration
}

// order is what an event's data asks of act.
type order struct {
	Exit   int    `json:"exit,omitempty"`   // end the process with this code
	Fail   bool   `json:"fail,omitempty"`   // return an error
	Millis int    `json:"millis,omitempty"` // take so long
	Gate   string `json:"gate,omitempty"`   // wait until this gate is open
	Deaf   bool   `json:"deaf,omitempty"`   // do not hear the context while waiting
}

// hostMain is a host with the subscriptions of a plan; it does not return unless
// the plan is bad.
func hostMain(text string) error {
	var p plan
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return err
	}
	_ = os.Unsetenv("PGMILL_FAILPOINT") // read already; a host refuses what it does not know
	cfg, err := pgxpool.ParseConfig(os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // a pooler may be between
	side, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		return err
	}
	for _, s := range p.Subs {
		poison := platform.Hold
		if s.Park {
			poison = platform.Park
		}
		platform.Register(platform.Subscription{Name: s.Name, Events: []string{s.Events}, Owners: platform.OwnedBy("test"), From: platform.FromZero,
			Shards: s.Shards, MaxAttempts: s.Attempts, Batch: s.Batch, OnPoison: poison, Timeout: s.Timeout,
			Handle: func(ctx context.Context, tx pgx.Tx, e platform.Event) error { return act(ctx, tx, side, s.Name, e) }})
	}
	for _, s := range p.Schedules {
		platform.Register(platform.Schedule{Name: s.Name, Cron: s.Cron, Owners: platform.OwnedBy("test"),
			Handle: func(ctx context.Context, tx pgx.Tx, t platform.Tick) error {
				return act(ctx, tx, side, s.Name, t.Event)
			}})
	}
	for _, topic := range p.Noted {
		platform.Register(platform.Step[work, struct{}]{Topic: topic, Rate: p.Rate, Run: func(ctx context.Context, a *platform.Attempt, in work) (struct{}, error) {
			if topic == "job.test.flaky" && a.Number == 1 {
				return struct{}{}, errors.New("refused")
			}
			_, err := side.Exec(ctx, "insert into effect (sub, key) values ($1, $2)", topic, in.Name)
			return struct{}{}, err
		}})
	}
	for _, s := range p.Steps {
		s.register(side)
	}
	os.Args = append([]string{"host", "worker", "--addr=127.0.0.1:0", "--log-format=json", "--poll-interval=200ms"}, p.Args...)
	host.Main()
	return nil
}

// act notes on a connection of its own that it was called, writes its effect through
// tx and does what the event's data says.
func act(ctx context.Context, tx pgx.Tx, side *pgxpool.Pool, name string, e platform.Event) error {
	o, err := platform.Data[order](e)
	if err != nil {
		return err
	}
	if o != (order{}) { // the plain ones are too many
		if _, err := side.Exec(ctx, "insert into seen (sub, event, pid) values ($1, $2, $3)", name, e.ID, os.Getpid()); err != nil {
			return err
		}
	}
	if _, err := tx.Exec(ctx, "insert into effect (sub, event, pos, key) values ($1, $2, $3, coalesce(nullif($4, ''), $5))", name, e.ID, e.Pos, e.Key, e.Target); err != nil {
		return err
	}
	switch {
	case o.Exit > 0:
		os.Exit(o.Exit)
	case o.Fail:
		return errors.New("refused")
	}
	wait := time.After(time.Duration(o.Millis) * time.Millisecond)
	done := ctx.Done()
	if o.Deaf {
		done = nil
	}
	for open := o.Gate == ""; !open; {
		select {
		case <-done:
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
		if err := side.QueryRow(context.WithoutCancel(ctx), "select exists (select from gate where name = $1)", o.Gate).Scan(&open); err != nil {
			return err
		}
	}
	select {
	case <-done:
		return ctx.Err()
	case <-wait:
		return nil
	}
}
