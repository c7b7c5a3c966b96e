package main

import (
	"context"
	"errors"
	"os"
	"strconv"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pgmill/pgmill/cmd/bench/internal/lab"
)

var rabbitScenarios = []lab.Scenario{
	{Name: "latency:rabbitmq", Note: "durable queue, persistent, publisher confirms; it delivers before it confirms: compare call_",
		Defaults: map[string]int{"n": 1000, "rate": 100}, Run: rabbitLatency},
}

// rabbitLatency publishes persistent messages to a durable queue; what counts as
// the commit is the confirm.
func rabbitLatency(ctx context.Context, r *lab.Run) error {
	url := os.Getenv("AMQP_URL")
	if url == "" {
		return errors.New("AMQP_URL is not set")
	}
	ownServices(r)
	conn, err := amqp.Dial(url)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // the run is over
	warm := 2 * r.Param("rate")
	h := lab.NewHandover(warm + r.N())
	queue, err := consume(conn, h)
	if err != nil {
		return err
	}
	publisher, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := publisher.Confirm(false); err != nil {
		return err
	}
	return h.Steady(ctx, r, r.Param("rate"), warm, func(ctx context.Context, i int) error {
		return h.Commit(i, func() error {
			confirm, err := publisher.PublishWithDeferredConfirmWithContext(ctx, "", queue, true, false,
				amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte(strconv.Itoa(i))})
			if err != nil {
				return err
			}
			acked, err := confirm.WaitContext(ctx)
			if err == nil && !acked {
				err = errors.New("the broker refused it")
			}
			return err
		})
	})
}

// consume empties the queue and hands what comes after to h.
func consume(conn *amqp.Connection, h *lab.Handover) (queue string, err error) {
	channel, err := conn.Channel()
	if err != nil {
		return "", err
	}
	q, err := channel.QueueDeclare("pgmill_bench", true, false, false, false, nil)
	if err != nil {
		return "", err
	}
	if _, err := channel.QueuePurge(q.Name, false); err != nil {
		return "", err
	}
	if err := channel.Qos(100, 0, false); err != nil {
		return "", err
	}
	deliveries, err := channel.Consume(q.Name, "", false, false, false, false, nil)
	if err != nil {
		return "", err
	}
	go func() {
		for d := range deliveries {
			if i, err := strconv.Atoi(string(d.Body)); err == nil {
				h.Handled(i)
			}
			_ = d.Ack(false) // the channel ends with the run
		}
	}()
	return q.Name, nil
}
