package host

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/cleanup"
	"github.com/pgmill/pgmill/platform/internal/claim"
	"github.com/pgmill/pgmill/platform/internal/lease"
	"github.com/pgmill/pgmill/platform/job"
	"github.com/pgmill/pgmill/platform/outbox"
	"github.com/pgmill/pgmill/platform/pg"
	"github.com/pgmill/pgmill/platform/policy"
	"github.com/pgmill/pgmill/platform/schedule"
	"github.com/pgmill/pgmill/platform/subscription"
	"github.com/pgmill/pgmill/platform/wakeup"
)

// Worker runs the functions of a registry on one database, without the command
// line, probes and profiles around it. Tests and programs that embed pgmill use it.
// The zero values of its fields are those of the host's settings.
type Worker struct {
	Database  string             // DSN; may be a pooler's
	ListenURL string             // DSN for LISTEN; "" means Database
	Registry  *platform.Registry // nil means platform.Default
	Log       *slog.Logger       // must be a redacting one (NewLogger); nil means silent
	Profile   string
	Version   string
	LeaseTTL  time.Duration // 0 means 10 s
	Grace     time.Duration // 0 means 10 s
	Poll      time.Duration // 0 means 1 s
	MaxConns  int           // handlers' connections; 0 means 20
	MaxClaims int           // shards held at once; 0 means 100
	MaxJobs   int           // jobs worked on at once; 0 means 100
	// Pools are those whose jobs it takes, of the topics that go to them. Without any it takes
	// its topics' jobs wherever they go, but none that asks for a pool or what one offers.
	Pools []string
	// Labels are what the placement of a job may ask for; without any it takes no job that
	// has a placement.
	Labels map[string]string
	// Retention is how long clean-ups keep rows, by platform.Cleanup.Key; what it lacks
	// is the declaration's.
	Retention map[string]time.Duration

	metrics *metrics            // nil: nobody counts
	api     func(*pgxpool.Pool) // is given a pool for the API, and nil before it closes; nil: there is none
	looked  func()              // called at each look; nil: nobody asks

	once     sync.Once
	mu       sync.Mutex
	id       string
	notReady platform.Reason
	deaf     bool
	others   atomic.Int32
	pooled   bool         // a pooler is between us and the database
	known    bool         // whether one is, is known
	lastTick atomic.Int64 // monotonic-ish: nanoseconds since start of the last tick that worked
	lastTurn atomic.Int64 // the same of the loop's last turn, whether it worked or not; 0: none yet
	started  time.Time
}

// labels is Labels for the database; nil: none.
func (w *Worker) labels() json.RawMessage {
	if len(w.Labels) == 0 {
		return nil
	}
	raw, _ := json.Marshal(w.Labels) // texts only
	return raw
}

// ID is the instance's id; "" before it has registered.
func (w *Worker) ID() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.id
}

// NotReady says why the worker cannot take work; empty means that it can.
func (w *Worker) NotReady() []platform.Reason {
	w.once.Do(w.defaults)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.notReady != "" {
		return []platform.Reason{w.notReady}
	}
	if time.Since(w.started)-time.Duration(w.lastTick.Load()) > 3*w.Poll+2*time.Second {
		return []platform.Reason{platform.ReasonDatabaseUnreachable}
	}
	return nil
}

// Degraded says what is slower than it could be.
func (w *Worker) Degraded() []platform.Reason {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.deaf && w.notReady == "" {
		return []platform.Reason{platform.ReasonListenUnavailable}
	}
	return nil
}

func (w *Worker) state(r platform.Reason) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notReady = r
}

// Run connects, checks, registers and works until ctx ends; then it drains within
// Grace and returns nil. It waits for a database that is away, and returns at once
// what waiting cannot mend: pg.ErrNotMigrated, pg.ErrGrantMissing.
func (w *Worker) Run(ctx context.Context) error {
	w.once.Do(w.defaults)
	if err := w.Registry.Check(); err != nil {
		return err
	}
	control, err := w.connect(ctx)
	if err != nil || control == nil {
		return err
	}
	defer control.Close()
	handlers, err := w.pool(context.WithoutCancel(ctx), "handlers")
	if err != nil {
		return err
	}
	defer handlers.Close()
	leases, err := w.pool(context.WithoutCancel(ctx), "lease")
	if err != nil {
		return err
	}
	defer leases.Close()
	if w.api != nil {
		pool, err := w.pool(context.WithoutCancel(ctx), "api")
		if err != nil {
			return err
		}
		defer pool.Close()
		w.api(pool)
		defer w.api(nil)
	}
	return w.serve(ctx, control, handlers, leases)
}

func (w *Worker) defaults() {
	w.Registry = cmp.Or(w.Registry, platform.Default)
	w.Log = slog.New(newCalm(cmp.Or(w.Log, slog.New(slog.DiscardHandler)).Handler()))
	w.LeaseTTL = cmp.Or(w.LeaseTTL, 10*time.Second)
	w.Grace = cmp.Or(w.Grace, 10*time.Second)
	w.Poll = cmp.Or(w.Poll, time.Second)
	w.MaxConns = cmp.Or(w.MaxConns, 20)
	w.MaxClaims = cmp.Or(w.MaxClaims, 100)
	if len(w.Pools) == 0 {
		w.Pools = nil // an empty list would be of no pool's topics
	}
	w.metrics = cmp.Or(w.metrics, newMetrics(w.Registry))
	w.started = time.Now()
	w.state(reasonStarting)
	w.mu.Lock()
	w.id = lease.NewID()
	w.mu.Unlock()
}

const reasonNotMigrated platform.Reason = "not_migrated"

// connect opens the control pool and checks the database, waiting for one that is
// away. A nil pool without an error means that ctx ended.
func (w *Worker) connect(ctx context.Context) (*pgxpool.Pool, error) {
	pool, err := w.pool(context.WithoutCancel(ctx), "control")
	if err != nil {
		return nil, err
	}
	for wait, word := 100*time.Millisecond, (time.Time{}); ; wait = min(2*wait, 2*time.Second) {
		pooled, err := isPooled(ctx, pool)
		if err == nil && !w.known {
			w.known, w.pooled = true, pooled
			if pooled {
				w.Log.Info("a pooler is between this host and the database")
			}
			pool.Close() // its sessions have no name yet
			if pool, err = w.pool(context.WithoutCancel(ctx), "control"); err != nil {
				return nil, err
			}
		}
		if err == nil {
			err = pg.Check(ctx, pool)
		}
		if err == nil {
			err = pg.CheckModules(ctx, pool, w.Registry.Modules())
		}
		switch {
		case err == nil:
			return pool, nil
		case ctx.Err() != nil:
			pool.Close()
			return nil, nil
		case errors.Is(err, pg.ErrNotMigrated), errors.Is(err, pg.ErrGrantMissing):
			w.state(reasonNotMigrated)
			pool.Close()
			return nil, err
		case claim.IsSQL(err) && !claim.IsServer(err): // waiting does not mend a refusal
			pool.Close()
			return nil, err
		}
		w.state(platform.ReasonDatabaseUnreachable)
		if time.Since(word) >= time.Second {
			word = time.Now()
			w.Log.Warn("the database does not answer; waiting", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// pool makes the pool of one use, whose sessions carry the instance's id, so that another
// host can end them when this one is dead.
func (w *Worker) pool(ctx context.Context, use string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(w.Database)
	if err != nil {
		return nil, faultf("not a Postgres DSN (its value is not shown)")
	}
	w.dress(cfg.ConnConfig, false)
	if w.pooled && cfg.ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe // no statement outlives its transaction there
	}
	cfg.MaxConns = int32(conns(w.MaxConns, w.api != nil)[use])
	cfg.MaxConnIdleTime = 5 * time.Minute
	cfg.PingTimeout = 2 * time.Second // of a connection that rested; it may have died without a word
	cfg.BeforeClose = func(c *pgx.Conn) {
		if c.IsClosed() { // given up on: pgx would wait 15 s for its end, and keep its place in the pool
			_ = c.PgConn().Conn().Close()
		}
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("%s pool: %w", use, err)
	}
	return pool, nil
}

// isPooled reports whether a pooler answers for the database: it hands out session
// ids of its own (F43).
func isPooled(ctx context.Context, pool *pgxpool.Pool) (bool, error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Release()
	var pid uint32
	if err := conn.QueryRow(ctx, "select pg_backend_pid()", pgx.QueryExecModeExec).Scan(&pid); err != nil {
		return false, err
	}
	return pid != conn.Conn().PgConn().PID(), nil
}

// dress names sessions by the instance, so that another host can end them when it is
// dead. Behind a pooler the server's sessions are everybody's, and a name would stay on
// them: there it is the handler's transaction that has one (F43).
func (w *Worker) dress(c *pgx.ConnConfig, direct bool) {
	c.RuntimeParams["application_name"] = "pgmill"
	if direct || w.known && !w.pooled {
		c.RuntimeParams["application_name"] = claim.SessionName(w.ID())
	}
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, 5*time.Second)
	c.DialFunc = dialer().DialContext
}

func (w *Worker) dial(ctx context.Context) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(cmp.Or(w.ListenURL, w.Database))
	if err != nil {
		return nil, faultf("not a Postgres DSN (its value is not shown)")
	}
	w.dress(cfg, w.ListenURL != "")
	return pgx.ConnectConfig(ctx, cfg)
}

// serve wires the engines and runs them until ctx ends, then takes them down in
// order: no new claims, holders finish and give back, then the looks, the bell and
// last the lease.
func (w *Worker) serve(ctx context.Context, control, handlers, leases *pgxpool.Pool) error {
	bg := context.WithoutCancel(ctx)
	feed := &outbox.Feed{Pool: control}
	bell := wakeup.NewBell(w.dial, control, w.ID(), w.Log)
	labels := w.labels()
	l := &lease.Lease{Pool: leases, ID: w.ID(), TTL: w.LeaseTTL, Version: w.Version, Profile: w.Profile, Pools: w.Pools, Labels: labels, Log: w.Log,
		Renewed: w.metrics.LeaseRenewed, Returned: w.metrics.ClaimsReturned, Why: w.why}
	cleanups := &cleanup.Engine{Cleanups: platform.Of[platform.Cleanup](w.Registry), Role: w.Registry.Role, Keep: w.Retention, Pool: control, Log: w.Log,
		Deleted: w.metrics.RowsCleaned, Done: w.metrics.CleanupDone}
	schedules := &schedule.Engine{Schedules: append(platform.Of[platform.Schedule](w.Registry), cleanups.Schedules()...), Pool: control, Instance: w.ID(), Log: w.Log, Emitted: w.metrics.TicksEmitted}
	engine := &subscription.Engine{Subscriptions: append(platform.Of[platform.Subscription](w.Registry), schedules.Subscriptions()...), Pool: handlers, Control: control, Feed: feed,
		Role: w.Registry.Role, Held: l.Held, Instance: w.ID(), Log: w.Log, LeaseTTL: w.LeaseTTL, MaxClaims: w.MaxClaims, Others: func() int { return int(w.others.Load()) }, Observe: w.observe()}
	engine.Init()
	jobs := &job.Engine{Steps: platform.Of[platform.StepSpec](w.Registry), Pool: handlers, Control: control, Held: l.Held, Instance: w.ID(), Log: w.Log, LeaseTTL: w.LeaseTTL,
		Slots: w.MaxJobs, Pools: w.Pools, Labels: labels, Role: w.Registry.Role, Observe: job.Observe{Ended: w.metrics.JobEnded, Lost: w.metrics.StaleWriterRejected}}
	jobs.Init()
	claims := &claim.Claims{Pool: control, Instance: w.ID(), Work: engine.Work(), MaxWorkers: w.MaxClaims, Jobs: jobs.Source(), Log: w.Log,
		Panicked: func(kind string, v any) { w.Log.Error("a holder panicked", "kind", kind, "error", policy.Panic(v)) }}
	jobs.Again = claims.RingJobs
	l.Known = func() []int64 { return append(claims.Known(), jobs.Known()...) }
	engine.Derived = func(n int) {
		w.metrics.ClaimsDerived(n)
		claims.Ring()
		if w.others.Load() > 0 {
			if err := bell.Ring(bg); err != nil {
				w.Log.Warn("other hosts not rung; their poll will do", "error", err)
			}
			w.metrics.BellRung()
		}
	}
	bell.Changed = w.listening
	bell.Reconnected = w.metrics.ListenReconnected
	bell.Rang = w.metrics.BellHeard
	bell.Work = func() { w.ring(); askJobs(jobs, claims) }
	w.listening(false)

	if err := w.register(ctx, engine, schedules, cleanups, jobs, l); err != nil {
		if ctx.Err() != nil { // told to stop before it had begun
			return nil
		}
		return err
	}
	if all := engine.Ownerless(); len(all) > 0 {
		w.Log.Warn("functions do not run until their Owners are filled in, or are platform.OwnedBy(module)", "reason", platform.ReasonOwnersIncomplete, "functions", strings.Join(all, "; "))
	}
	w.orphans(ctx, control)
	if err := claims.Start(bg); err != nil {
		return err
	}
	loop := &wakeup.Loop{Poll: w.Poll, Arm: feed.Arm, Bell: bell, Log: w.Log, Others: func() int { return int(w.others.Load()) }}
	loop.Look = func(ctx context.Context, hush time.Duration) (wakeup.Found, error) {
		return w.look(ctx, feed, engine, jobs, claims, func(ctx context.Context) (outbox.News, error) { return feed.Look(ctx, hush) })
	}
	loop.Answer = func(ctx context.Context) (wakeup.Found, error) {
		return w.look(ctx, feed, engine, jobs, claims, engine.Look)
	}
	loop.Jobs = func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, w.patience()) // as a look (F42)
		defer cancel()
		return jobs.Cancelled(ctx)
	}
	loop.Tick = func(ctx context.Context) (wakeup.Found, error) {
		return w.tick(ctx, control, bell, feed, engine, schedules, jobs, claims)
	}

	looks, stopLooks := context.WithCancel(bg)
	leased, stopLease := context.WithCancel(bg)
	defer stopLooks()
	defer stopLease()
	lost := make(chan error, 1)
	var group errgroup.Group
	group.Go(func() error { return loop.Run(looks) })
	group.Go(func() error { return bell.Run(looks) })
	group.Go(func() error { return jobs.Run(bg) })
	group.Go(func() error { return w.watchLag(looks, control) })
	group.Go(func() error { return w.keepPartitions(looks, control) })
	group.Go(func() error {
		err := l.Run(leased)
		lost <- err
		return err
	})
	w.touched()
	w.state("")
	w.Log.Info("host works", "instance", w.ID(), "functions", len(w.Registry.Functions()))

	var cause error
	select {
	case <-ctx.Done():
	case cause = <-lost:
	}
	w.state(platform.ReasonDraining)
	engine.Drain()
	grace, cancel := context.WithTimeout(bg, w.Grace)
	defer cancel()
	if err := claims.Stop(grace); err != nil {
		w.Log.Error("not everything was handed back; it will be rescued", "error", err)
	}
	jobs.Stop(bg) // whatever is left of the grace: what is handed back must be so before the lease ends; without a database that ends it
	stopLooks()
	stopLease()
	return errors.Join(cause, group.Wait())
}

// register declares the functions and enters the instance, waiting out a database
// that goes away meanwhile.
func (w *Worker) register(ctx context.Context, engine *subscription.Engine, schedules *schedule.Engine, cleanups *cleanup.Engine, jobs *job.Engine, l *lease.Lease) error {
	var names []string
	for _, f := range w.Registry.Functions() {
		names = append(names, f.Describe().Name)
	}
	for {
		err := engine.Declare(ctx)
		if err == nil {
			err = schedules.Declare(ctx)
		}
		if err == nil {
			err = cleanups.Declare(ctx)
		}
		if err == nil {
			err = jobs.Declare(ctx)
		}
		if err == nil {
			err = l.Register(ctx, names)
		}
		if err == nil || ctx.Err() != nil || claim.IsSQL(err) && !claim.IsServer(err) && !claim.IsConflict(err) {
			return err
		}
		w.Log.Warn("not registered yet", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

func (w *Worker) why() []string {
	var why []string
	for _, r := range w.Degraded() {
		why = append(why, string(r))
	}
	return why
}

func (w *Worker) listening(up bool) {
	w.mu.Lock()
	w.deaf = !up
	w.mu.Unlock()
	w.metrics.ListenUp(up)
}
