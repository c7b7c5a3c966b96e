package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"time"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/host"
)

// startHost runs a host with these subscriptions in this process, in a registry of
// its own, and returns when it works. stop drains it.
func startHost(ctx context.Context, dsn string, subs ...platform.Subscription) (stop func(), err error) {
	registry := platform.NewRegistry()
	for _, s := range subs {
		if err := registry.Add(s); err != nil {
			return nil, err
		}
	}
	return startWorker(ctx, &host.Worker{
		Database: dsn, Registry: registry, Profile: "bench", Version: "bench",
		Log: host.NewLogger(os.Stderr, "json", slog.LevelWarn, dsn),
	})
}

// startWorker is startHost for a worker with settings.
func startWorker(ctx context.Context, w *host.Worker) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	stop = func() { cancel(); <-ended }
	for deadline := time.After(30 * time.Second); ; {
		select {
		case err := <-ended:
			cancel()
			return nil, errors.Join(errors.New("the host ended before it worked"), err)
		case <-deadline:
			stop()
			return nil, errors.New("the host did not work within 30 s")
		case <-time.After(time.Millisecond):
		}
		if w.ID() != "" && len(w.NotReady()) == 0 {
			return stop, nil
		}
	}
}

// withModules migrates what the host binary's modules have, as `host migrate up` does.
func withModules(ctx context.Context, dsn string) error {
	cmd := exec.CommandContext(ctx, os.Getenv("BENCH_HOST"), "migrate", "up", "--profile", "single-db-pilot")
	cmd.Env = append(os.Environ(), "DATABASE_URL="+dsn)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("host migrate up: %w: %s", err, out)
	}
	return nil
}

// hostCommand is `host serve` as its own process, ready when its /readyz on port is.
func hostCommand(dsn string, port int) (*exec.Cmd, error) {
	program := os.Getenv("BENCH_HOST")
	if program == "" {
		return nil, errors.New("BENCH_HOST is not set")
	}
	cmd := exec.Command(program, "serve", "--profile", "single-db-pilot", "--addr", fmt.Sprintf("127.0.0.1:%d", port))
	cmd.Env = append(os.Environ(), "DATABASE_URL="+dsn)
	return cmd, nil
}
