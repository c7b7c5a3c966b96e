// Package model runs writers, hosts and readers against each other and compares what
// was delivered with what was committed (F05, N7, F14). There is no code in it but
// tests: go test ./platform/outbox/model, for minutes with PGMILL_SOAK=1. With
// -tags mutants the same checks are run on systems that are wrong in known ways, and
// each must be found out.
package model

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/host"
)

// hostEnv makes the test binary a host: a DSN and the names of subscriptions.
const hostEnv = "PGMILL_MODEL_HOST"

func TestMain(m *testing.M) {
	if what := os.Getenv(hostEnv); what != "" {
		os.Exit(runHost(what))
	}
	os.Exit(m.Run())
}

const (
	hostTTL  = time.Second
	hostPoll = 100 * time.Millisecond
)

// runHost is a host as a process of its own, to be killed and stopped.
func runHost(what string) int {
	dsn, names, _ := strings.Cut(what, " ")
	registry := platform.NewRegistry()
	for _, name := range strings.Split(names, ",") {
		if err := registry.Add(subscriptions[name]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	w := &host.Worker{Database: dsn, Registry: registry, LeaseTTL: hostTTL, Poll: hostPoll, Grace: 3 * time.Second}
	if err := w.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "host:", err)
		return 1
	}
	return 0
}
