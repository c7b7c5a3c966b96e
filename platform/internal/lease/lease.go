package lease

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/platform/internal/db"
)

// ErrLost is the cause of a held context that ended because the lease could not be
// renewed in time: another host may own the work now.
var ErrLost = errors.New("lease lost")

// ErrDeregistered is returned by Run when the instance was deregistered under it.
var ErrDeregistered = errors.New("the instance was deregistered")

// Kind is the kind that hosts register as.
const Kind = "worker"

// Lease is one process's claim to be alive. Fill in the fields, then Register and Run.
type Lease struct {
	Pool    *pgxpool.Pool
	ID      string        // fresh for each start: NewID
	TTL     time.Duration // must be over 0
	Version string
	Profile string
	Pools   []string        // it takes jobs of these pools only; nil: of any
	Labels  json.RawMessage // what placements of jobs may ask for; nil: nothing
	Log     *slog.Logger

	// Known lists the claims this process works on; rows it does not know are
	// handed back. Why lists the reasons why it is degraded. Both may be nil.
	Known func() []int64
	Why   func() []string
	// Renewed hears how each renewal ended: ok, failed or broken; may be nil.
	Renewed func(outcome string)
	// Returned hears how many unknown claims were handed back; may be nil.
	Returned func(n int)

	mu       sync.Mutex
	held     context.Context
	drop     context.CancelCauseFunc
	watchdog *time.Timer
}

var notID = regexp.MustCompile(`[^A-Za-z0-9_.:-]`)

// NewID makes a fresh instance id: the host's name and a random part, so that a
// restarted host never owns its ghosts (F38).
func NewID() string {
	name, _ := os.Hostname()
	name = strings.Trim(notID.ReplaceAllString(name, "-"), ".")
	if len(name) > 30 {
		name = name[:30]
	}
	return fmt.Sprintf("%s-%s", name, strings.ToLower(rand.Text()[:12]))
}

// Register enters the process and its functions; the lease starts with it.
func (l *Lease) Register(ctx context.Context, functions []string) error {
	sent := time.Now()
	q := db.New(l.Pool)
	if _, err := q.LeaseRegister(ctx, db.LeaseRegisterParams{Kind: Kind, ID: l.ID, Contract: "pgmill-host/" + l.Version,
		Version: l.Version, Profile: l.Profile, TtlSeconds: l.TTL.Seconds(), Pools: l.Pools, Labels: l.Labels}); err != nil {
		return fmt.Errorf("register instance: %w", err)
	}
	if err := q.LeaseFunctions(ctx, db.LeaseFunctionsParams{Instance: l.ID, Functions: functions}); err != nil {
		return fmt.Errorf("register functions: %w", err)
	}
	l.hold(sent)
	return nil
}

// Held is the context that work under this lease runs in. It ends with ErrLost when
// the lease may have run out; after a later renewal Held answers a new one.
func (l *Lease) Held() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held
}

// hold extends the lease by one ttl from when the renewal was sent.
func (l *Lease) hold(sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil || l.held.Err() != nil {
		l.held, l.drop = context.WithCancelCause(context.Background())
	}
	if l.watchdog != nil {
		l.watchdog.Stop()
	}
	drop := l.drop
	l.watchdog = time.AfterFunc(time.Until(sent.Add(l.TTL)), func() { drop(ErrLost) })
}

func (l *Lease) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(ErrLost)
}

// Run renews until ctx ends, then deregisters, best effort: expiry is the
// guarantee, leaving only shortens the wait.
func (l *Lease) Run(ctx context.Context) error {
	wait := l.TTL / 3
	for {
		select {
		case <-ctx.Done():
			return l.leave(context.WithoutCancel(ctx))
		case <-time.After(wait):
		}
		wait = l.TTL / 3
		sent := time.Now()
		r, err := l.renew(ctx)
		switch {
		case ctx.Err() != nil:
			continue
		case err != nil:
			l.Log.Warn("lease not renewed", "error", err)
			l.report("failed")
			wait = min(wait, max(100*time.Millisecond, l.TTL/10))
		case !r.Alive:
			l.lose()
			return ErrDeregistered
		case r.Broken:
			l.lose() // whatever was under way may be another's now
			l.hold(sent)
			l.report("broken")
		default:
			l.hold(sent)
			l.report("ok")
		}
	}
}

func (l *Lease) renew(ctx context.Context) (db.LeaseRenewRow, error) {
	ctx, cancel := context.WithTimeout(ctx, l.TTL/3)
	defer cancel()
	p := db.LeaseRenewParams{Me: l.ID, Known: []int64{}, Why: []string{}}
	if l.Known != nil {
		p.Known = append(p.Known, l.Known()...)
	}
	if l.Why != nil {
		p.Why = append(p.Why, l.Why()...)
	}
	r, err := db.New(l.Pool).LeaseRenew(ctx, p)
	if err == nil && r.Returned > 0 && l.Returned != nil {
		l.Returned(int(r.Returned))
	}
	return r, err
}

func (l *Lease) report(outcome string) {
	if l.Renewed != nil {
		l.Renewed(outcome)
	}
}

func (l *Lease) leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	l.mu.Lock()
	if l.watchdog != nil {
		l.watchdog.Stop()
	}
	l.mu.Unlock()
	if _, err := db.New(l.Pool).LeaseDeregister(ctx, db.LeaseDeregisterParams{Kind: Kind, ID: l.ID}); err != nil {
		l.Log.Warn("instance not deregistered; its lease will run out", "error", err)
	}
	return nil
}
