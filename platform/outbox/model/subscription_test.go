package model

import (
	"context"
	"errors"
	"math/rand/v2"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
)

// The subscriptions of the model. Each writes its effects down once per call, on a
// table where what happened twice is there twice.
var subscriptions = byName(
	// Live from the beginning, keys in order over four shards; what it emits must be
	// there exactly as often as its effects.
	platform.Subscription{Name: "model.live", Shards: 4, From: platform.FromZero, Handle: live},
	// The same in batches, in one order.
	platform.Subscription{Name: "model.batch", Shards: 1, From: platform.FromZero, HandleBatch: inBatches},
	// Declared half-way: one reads everything from the beginning, one what comes.
	platform.Subscription{Name: "model.late", Shards: 2, From: platform.FromZero, HandleBatch: inBatches},
	platform.Subscription{Name: "model.now", Shards: 2, From: platform.FromNow, Handle: effect},
)

const (
	early = "model.live,model.batch"
	all   = early + ",model.late,model.now"
)

func byName(list ...platform.Subscription) map[string]platform.Subscription {
	m := map[string]platform.Subscription{}
	for _, s := range list {
		s.Owners = platform.OwnedBy("model")
		s.Events = []string{"model.w"}
		s.Batch = 40
		s.MaxAttempts = 1000
		name := s.Name
		if handle := s.Handle; handle != nil {
			s.Handle = func(ctx context.Context, tx pgx.Tx, e platform.Event) error { return handle(with(ctx, name), tx, e) }
		} else {
			handle := s.HandleBatch
			s.HandleBatch = func(ctx context.Context, tx pgx.Tx, e []platform.Event) error { return handle(with(ctx, name), tx, e) }
		}
		m[name] = s
	}
	return m
}

type nameKey struct{}

func with(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, nameKey{}, name)
}

var errByChance = errors.New("by chance")

func effect(ctx context.Context, tx pgx.Tx, e platform.Event) error {
	_, err := tx.Exec(ctx, `insert into effect (subscription, event, pos, key, n) values ($1, $2, $3, $4, coalesce(($5::jsonb ->> 'n')::bigint, 0))`,
		ctx.Value(nameKey{}), e.ID, e.Pos, e.Key, e.Data)
	if err == nil && rand.IntN(2000) == 0 {
		return errByChance // after its writes
	}
	return err
}

func live(ctx context.Context, tx pgx.Tx, e platform.Event) error {
	if rand.IntN(3000) == 0 {
		panic("by chance")
	}
	if err := effect(ctx, tx, e); err != nil {
		return err
	}
	_, err := platform.Emit(ctx, tx, platform.NewEvent{Type: "model.echo", Target: e.Target, Data: map[string]int64{"of": e.ID}})
	return err
}

func inBatches(ctx context.Context, tx pgx.Tx, events []platform.Event) error {
	for _, e := range events {
		if err := effect(ctx, tx, e); err != nil {
			return err
		}
	}
	return nil
}
