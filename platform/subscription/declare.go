package subscription

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/internal/db"
)

// declareChunk is how many subscriptions are written down in one transaction.
const declareChunk = 500

// Ownerless names the subscriptions that do not run because their owner matrix is not
// complete, each with what it lacks.
func (e *Engine) Ownerless() []string {
	var all []string
	for _, s := range e.Subscriptions {
		if missing := s.Owners.Missing(); len(missing) > 0 {
			all = append(all, s.Name+" lacks "+strings.Join(missing, ", "))
		}
	}
	return all
}

// Declare writes down which subscriptions this build has. A new one starts where
// its From says; shards and cursors that exist are left as they are.
func (e *Engine) Declare(ctx context.Context) error {
	news, err := e.Feed.Look(ctx, 0)
	if err != nil {
		return err
	}
	for some := range slices.Chunk(e.Subscriptions, declareChunk) {
		err := pgx.BeginFunc(ctx, e.Control, func(tx pgx.Tx) error { return e.declare(ctx, db.New(tx), some, news.Head) })
		if err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) declare(ctx context.Context, q *db.Queries, subs []platform.Subscription, head int64) error {
	functions := make([]db.FunctionDeclareParams, len(subs))
	declared := make([]db.SubscriptionDeclareParams, len(subs))
	shards := make([]db.SubscriptionShardsParams, len(subs))
	for i, s := range subs {
		var reason *string
		if !s.Owners.Complete() {
			r := string(platform.ReasonOwnersIncomplete)
			reason = &r
		}
		d := s.Describe()
		functions[i] = db.FunctionDeclareParams{Name: d.Name, Kind: d.Kind, Module: d.Module, Listens: d.Listens, Reason: reason}
		declared[i] = db.SubscriptionDeclareParams{
			Name: s.Name, Likes: likes(s.Events), OrderBy: string(s.Key), Shards: int32(s.Shards), Batch: int32(s.Batch),
			MaxAttempts: int32(s.MaxAttempts), OnPoison: string(s.OnPoison), Replayable: s.Replayable, TimeoutSeconds: s.Timeout.Seconds()}
		shards[i] = db.SubscriptionShardsParams{Name: s.Name, Pos: head}
		if s.From == platform.FromZero {
			shards[i].Pos = 0
		}
	}
	failed := func(what string, errs *error) func(int, error) {
		return func(i int, err error) {
			if err != nil && *errs == nil { // those after it fail because it did
				*errs = fmt.Errorf("%s %s: %w", what, subs[i].Name, err)
			}
		}
	}
	var f, d, s error
	q.FunctionDeclare(ctx, functions).Exec(failed("declare function", &f))
	if f == nil {
		fail := failed("declare subscription", &d)
		q.SubscriptionDeclare(ctx, declared).QueryRow(func(i int, shards int32, err error) {
			fail(i, err)
			if err == nil {
				e.sharded(subs[i].Name, shards)
			}
		})
	}
	if f == nil && d == nil {
		fail := failed("make the shards of", &s)
		q.SubscriptionShards(ctx, shards).QueryRow(func(i int, start int64, err error) {
			fail(i, err)
			if err == nil && start > shards[i].Pos && shards[i].Pos == 0 {
				e.Log.Warn("subscription does not start with the first event: earlier ones are archived", "subscription", subs[i].Name, "after", start)
			}
		})
	}
	return errors.Join(f, d, s)
}

// likes turns patterns into LIKE patterns: only * is special in ours, only _ in
// what they may hold.
func likes(patterns []string) []string {
	l := make([]string, len(patterns))
	for i, p := range patterns {
		l[i] = strings.NewReplacer(`_`, `\_`, `*`, `%`).Replace(p)
	}
	return l
}
