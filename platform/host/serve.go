package host

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/api"
	"github.com/pgmill/pgmill/platform/pg"
)

// reasonStarting is shown until the runtime says more.
const reasonStarting platform.Reason = "starting"

// process is one running host: probes from the first moment, the runtime once
// there is a database, and how ready both are.
type process struct {
	cfg      Config
	kind     string // worker or serve
	reg      *platform.Registry
	log      *slog.Logger
	metrics  *metrics
	demo     bool          // keep a little pgbench traffic running
	patience time.Duration // for the first connection; 0 is no end

	runtime  atomic.Pointer[hostRuntime]
	waiting  atomic.Pointer[platform.Reason] // why there is no runtime yet
	draining atomic.Bool
	started  func(where) // told once, when the database is at hand

	api  atomic.Pointer[pgxpool.Pool] // the API's; nil while there is none
	bell api.Bell
}

// where says where the parts of a process are.
type where struct {
	addr      string
	private   bool // the database is the private one
	functions int
}

// newProcess prepares a host; nothing runs yet. started may be nil.
func newProcess(cfg Config, kind string, reg *platform.Registry, log *slog.Logger, started func(where)) (*process, error) {
	if err := reg.Check(); err != nil {
		return nil, faultf("functions: %v", err)
	}
	if len(cfg.Functions) > 0 {
		some, err := reg.Only(cfg.Functions...)
		if err != nil {
			return nil, faultf("functions: %v", err)
		}
		reg = some
	}
	p := &process{cfg: cfg, kind: kind, reg: reg, log: log, metrics: newMetrics(reg), started: started}
	if cfg.Profile.Posture == postureLocal {
		p.patience = localPatience
	}
	return p, nil
}

// Run serves until ctx ends and then drains: not ready at once, live to the end.
func (p *process) Run(ctx context.Context) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", p.cfg.Addr)
	if err != nil {
		return fmt.Errorf("probes: %v; choose another --addr", err) // no database error: not wrapped
	}
	p.log.Info("probes answer", "addr", l.Addr().String())
	stopping := ctx
	stop := context.AfterFunc(ctx, func() {
		p.draining.Store(true)
		p.log.Info("stopping", "grace", p.cfg.Grace)
	})
	defer stop()
	return runServices(ctx, p.cfg.Grace+1500*time.Millisecond, []service{
		{"probes", func(ctx context.Context) error { return serveHTTP(ctx, l, p.handler(stopping)) }},
		{"runtime", func(ctx context.Context) error { return p.work(ctx, l.Addr().String()) }},
		{"supervisor", p.tellSupervisor},
	})
}

// handler is the probes and, of serve, the API. stopping ends when the process begins to
// stop.
func (p *process) handler(stopping context.Context) http.Handler {
	e := newProbes(p.kind, p, p.metrics)
	if p.kind != "serve" {
		return e
	}
	s := &api.Server{Pool: p.api.Load, Keys: p.cfg.APIKeys, Open: p.cfg.apiOpen(), Log: p.log, Bell: &p.bell, Stopping: stopping,
		Late: p.metrics.StaleWriterRejected}
	if len(s.Keys) == 0 && !s.Open {
		p.log.Warn("the API is closed: set PGMILL_API_KEYS or PGMILL_API_KEYS_FILE, or run worker")
	}
	s.Mount(e)
	return e
}

// work gets the database ready as far as the profile lets it, and runs functions.
func (p *process) work(ctx context.Context, addr string) error {
	cfg := p.cfg
	if cfg.Database == "" {
		database, err := pg.StartPrivate(ctx, pg.PrivateOptions{Dir: cfg.DataDir, Log: p.log})
		if err != nil {
			return stopOr(ctx, err)
		}
		defer database.Close()
		cfg.Database = database.DSN()
	}
	err := p.reach(ctx, func(ctx context.Context) error {
		if cfg.Migrate {
			return p.migrate(ctx, cfg.Direct())
		}
		return knock(ctx, cfg.Database)
	})
	if err != nil {
		return stopOr(ctx, err)
	}
	r := newRuntime(cfg, p.reg, p.log, p.metrics)
	if p.kind == "serve" {
		r.api, r.looked = p.api.Store, p.bell.Ring
	}
	p.runtime.Store(r)
	if p.started != nil {
		p.started(where{addr: addr, private: p.cfg.Database == "", functions: len(p.reg.Functions())})
	}
	if p.demo {
		var traffic sync.WaitGroup
		defer traffic.Wait()
		traffic.Go(func() {
			if err := runDemoTraffic(ctx, cfg, p.log); err != nil {
				p.log.Warn("no demo traffic; the host is well without", "error", err)
			}
		})
	}
	return r.Run(ctx)
}

func (p *process) migrate(ctx context.Context, dsn string) error {
	done, err := pg.Migrate(ctx, dsn, p.log, p.reg.Modules()...)
	for _, c := range done {
		p.log.Info("migrated", "part", c.Part, "version", c.Version)
	}
	return err
}

// stopOr hides an error that is only the consequence of being told to stop.
func stopOr(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// NotReady says why the process cannot do its work; empty means that it can.
func (p *process) NotReady() []platform.Reason {
	if p.draining.Load() {
		return []platform.Reason{platform.ReasonDraining}
	}
	if r := p.runtime.Load(); r != nil {
		return r.NotReady()
	}
	if why := p.waiting.Load(); why != nil {
		return []platform.Reason{*why}
	}
	return []platform.Reason{reasonStarting}
}

// Degraded says what is not well though the work is done.
func (p *process) Degraded() []platform.Reason {
	if r := p.runtime.Load(); r != nil {
		return r.Degraded()
	}
	return nil
}

// Identity is the instance id; "" before it is registered.
func (p *process) Identity() string {
	if r := p.runtime.Load(); r != nil {
		return r.Identity()
	}
	return ""
}
