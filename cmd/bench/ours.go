package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/pgmill/pgmill/platform"
)

// startHost runs a host with these subscriptions in this process, in a registry of
// its own, and returns when it has claimed what there is to claim or would only
// wait for events. stop drains it.
func startHost(ctx context.Context, dsn string, subs ...platform.Subscription) (stop func(), err error) {
	return nil, errors.New("not wired")
}

// hostCommand is `host serve` as its own process, ready when its /readyz on port is.
func hostCommand(dsn string, port int) (*exec.Cmd, error) {
	program := os.Getenv("BENCH_HOST")
	if program == "" {
		return nil, errors.New("BENCH_HOST is not set")
	}
	return exec.Command(program, "serve", "--profile", "single-db-pilot", "--dsn", dsn, "--listen", fmt.Sprintf("127.0.0.1:%d", port)), nil
}
