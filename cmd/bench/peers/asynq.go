package main

import (
	"context"
	"errors"
	"os"
	"strconv"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/pgmill/pgmill/cmd/bench/internal/lab"
)

var asynqScenarios = []lab.Scenario{
	{Name: "latency:asynq_stock", Note: "Asynq on Redis, polls each second",
		Defaults: map[string]int{"n": 1000, "rate": 100}, Run: asynqLatency(0)},
	{Name: "latency:asynq_tuned", Note: "the same, polls each 5 ms",
		Defaults: map[string]int{"n": 1000, "rate": 100}, Run: asynqLatency(5 * time.Millisecond)},
}

// asynqLatency times from Enqueue returned, which is no commit beside a business
// row, to the handler.
func asynqLatency(poll time.Duration) func(context.Context, *lab.Run) error {
	return func(ctx context.Context, r *lab.Run) error {
		addr := os.Getenv("REDIS_ADDR")
		if addr == "" {
			return errors.New("REDIS_ADDR is not set")
		}
		if err := empty(ctx, addr); err != nil {
			return err
		}
		ownServices(r)
		redisOptions := asynq.RedisClientOpt{Addr: addr, PoolSize: 64}
		client := asynq.NewClient(redisOptions)
		defer client.Close() //nolint:errcheck // the run is over
		warm := 2 * r.Param("rate")
		h := lab.NewHandover(warm + r.N())
		server := asynq.NewServer(redisOptions, asynq.Config{Concurrency: 100, TaskCheckInterval: poll, Logger: silent{}})
		err := server.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
			i, err := strconv.Atoi(string(t.Payload()))
			if err == nil {
				h.Handled(i)
			}
			return err
		}))
		if err != nil {
			return err
		}
		defer server.Shutdown()
		return h.Steady(ctx, r, r.Param("rate"), warm, func(ctx context.Context, i int) error {
			return h.Commit(i, func() error {
				_, err := client.EnqueueContext(ctx, asynq.NewTask("bench", []byte(strconv.Itoa(i))))
				return err
			})
		})
	}
}

func empty(ctx context.Context, addr string) error {
	c := redis.NewClient(&redis.Options{Addr: addr})
	defer c.Close() //nolint:errcheck // nothing is lost
	return c.FlushAll(ctx).Err()
}

// silent is a logger that does not log.
type silent struct{}

func (silent) Debug(...any) {}
func (silent) Info(...any)  {}
func (silent) Warn(...any)  {}
func (silent) Error(...any) {}
func (silent) Fatal(...any) {}
