package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/cmd/bench/internal/lab"
)

// ear is a session that listens, and counts what it hears.
type ear struct {
	heard atomic.Int64
	since time.Time // set by reset, read by report: a run apart
	stop  func()
}

func listenAll(ctx context.Context, dsn string, channels ...string) (*ear, error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, err
	}
	for _, channel := range channels {
		if _, err := conn.Exec(ctx, "listen "+channel); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	e := &ear{stop: func() { cancel(); <-done }}
	go func() {
		defer close(done)
		defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing is lost
		for {
			if _, err := conn.WaitForNotification(ctx); err != nil {
				return
			}
			e.heard.Add(1)
		}
	}()
	return e, nil
}

// reset begins the count that report gives as notifies a second.
func (e *ear) reset() {
	e.since = time.Now()
	e.heard.Store(0)
}

func (e *ear) report(r *lab.Run) {
	r.Set("notifies_s", float64(e.heard.Load())/time.Since(e.since).Seconds())
}
