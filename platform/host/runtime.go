package host

import (
	"context"
	"log/slog"

	"github.com/pgmill/pgmill/platform"
)

// runtime is a worker as the command line runs it.
type hostRuntime struct{ *Worker }

func newRuntime(cfg Config, reg *platform.Registry, log *slog.Logger, m *metrics) *hostRuntime {
	some, err := reg.Only(cfg.Functions...)
	if err != nil || len(cfg.Functions) == 0 {
		some = reg
	}
	w := &Worker{Database: cfg.Database, ListenURL: cfg.ListenURL, Registry: some, Log: log, Profile: cfg.Profile.Name, Version: Version(),
		LeaseTTL: cfg.LeaseTTL, Grace: cfg.Grace, Poll: cfg.PollInterval, MaxConns: cfg.MaxConns, MaxClaims: cfg.MaxClaims, MaxJobs: cfg.MaxJobs,
		Pools: cfg.Pools, Labels: cfg.Labels, Retention: cfg.Retention, metrics: m}
	w.once.Do(w.defaults) // probes ask from now on
	return &hostRuntime{w}
}

// Identity is the instance's id; "" before registration.
func (r *hostRuntime) Identity() string { return r.ID() }

// Run works until ctx ends and has drained.
func (r *hostRuntime) Run(ctx context.Context) error { return r.Worker.Run(ctx) }
