package host

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/pg"
)

// demoOn does the whole demo on one database. If no live host has the subscription,
// a host of this process has it until the demo is over.
func demoOn(ctx context.Context, cfg Config, a demoArgs, reg *platform.Registry, log *slog.Logger, p *progress) (demoReport, error) {
	d, err := openDemo(ctx, cfg)
	if err != nil {
		return demoReport{}, err
	}
	defer d.pool.Close()
	if err := pg.Check(ctx, d.pool); err != nil {
		return demoReport{}, err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	// The host ends after the demo, not with it: it drains.
	here, stop := context.WithCancel(context.WithoutCancel(ctx))
	var host sync.WaitGroup
	defer host.Wait()
	defer stop()
	d.lonely = sync.OnceFunc(func() {
		only, err := reg.Only(demoFunction)
		if err != nil {
			fail(fmt.Errorf("no live host has %s, and neither has this build: import github.com/pgmill/pgmill/functions/demo", demoFunction))
			return
		}
		p.say("no live host has %s: this process runs it", demoFunction)
		cfg.Functions = nil // whatever is configured, this one is meant
		host.Go(func() {
			if err := newRuntime(cfg, only, log, newMetrics(only)).Run(here); err != nil {
				fail(fmt.Errorf("host for the demo: %w", err))
			}
		})
	})
	report, err := d.run(ctx, a, p)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return report, err
}
