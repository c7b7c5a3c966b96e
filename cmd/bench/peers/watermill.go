package main

import (
	"context"
	"fmt"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/cmd/bench/internal/lab"
)

var watermillScenarios = []lab.Scenario{
	{Name: "subscribe:watermill_100", Note: "Watermill-SQL's ordered subscriber, its own batch of 100, no-op",
		Defaults: map[string]int{"n": 20_000}, Run: watermill(100)},
	{Name: "subscribe:watermill_500", Note: "the same, batch of 500",
		Defaults: map[string]int{"n": 20_000}, Run: watermill(500)},
}

const topic = "orders"

// watermill publishes n messages, ten at a time, and times how long its subscriber
// takes to hand them to a handler that acknowledges at once.
func watermill(batch int) func(context.Context, *lab.Run) error {
	return func(ctx context.Context, r *lab.Run) error {
		dsn, err := r.Fresh(ctx, "")
		if err != nil {
			return err
		}
		pool, err := lab.Pool(ctx, dsn, 8, nil)
		if err != nil {
			return err
		}
		defer pool.Close()
		sub, err := publish(ctx, pool, batch, r.N())
		if err != nil {
			return err
		}
		defer sub.Close() //nolint:errcheck // the run is over
		messages, err := sub.Subscribe(ctx, topic)
		if err != nil {
			return err
		}
		for i := range r.N() {
			select {
			case m := <-messages:
				if i == 0 {
					r.Start()
				}
				m.Ack()
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		r.Stop()
		r.Ops = r.N() - 1
		return nil
	}
}

func publish(ctx context.Context, pool *pgxpool.Pool, batch, n int) (*wsql.Subscriber, error) {
	schema := wsql.DefaultPostgreSQLSchema{SubscribeBatchSize: batch}
	db := wsql.BeginnerFromPgx(pool)
	sub, err := wsql.NewSubscriber(db, wsql.SubscriberConfig{
		ConsumerGroup: "bench", SchemaAdapter: schema, OffsetsAdapter: wsql.DefaultPostgreSQLOffsetsAdapter{},
		InitializeSchema: true, PollInterval: 5 * time.Millisecond,
	}, nil)
	if err != nil {
		return nil, err
	}
	if err := sub.SubscribeInitialize(topic); err != nil {
		return nil, err
	}
	pub, err := wsql.NewPublisher(db, wsql.PublisherConfig{SchemaAdapter: schema}, nil)
	if err != nil {
		return nil, err
	}
	for done := 0; done < n; done += 10 {
		var ten []*message.Message
		for i := done; i < min(done+10, n); i++ {
			ten = append(ten, message.NewMessage(fmt.Sprint(i), fmt.Appendf(nil, `{"order":%d,"amount":%d}`, i, i%1000)))
		}
		if err := pub.Publish(topic, ten...); err != nil {
			return nil, err
		}
	}
	_, err = pool.Exec(ctx, "vacuum analyze")
	return sub, err
}
