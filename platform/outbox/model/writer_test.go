package model

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
)

// write is one writer: until ctx ends it emits in transactions that sleep, roll
// back, use savepoints and get their transaction id early, and tells h what was
// committed. pace is the longest ordinary sleep before a commit.
func (w *world) write(ctx context.Context, t testing.TB, h *history, pace time.Duration) {
	for ctx.Err() == nil {
		records, err := w.transaction(context.WithoutCancel(ctx), pace)
		if err != nil {
			t.Errorf("writer: %v", err)
			return
		}
		h.commit(records...)
	}
}

func (w *world) transaction(ctx context.Context, pace time.Duration) ([]record, error) {
	tx, err := w.pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback(ctx) //nolint:errcheck // committed below
	if rand.IntN(2) == 0 { // the transaction id long before the event, and before the key's lock
		if _, err := tx.Exec(ctx, `insert into chatter values (1)`); err != nil {
			return nil, err
		}
		doze(pace / 2)
	}
	var records []record
	if rand.IntN(3) > 0 { // of a key whose row is locked: in the order of n
		r := record{key: fmt.Sprint("k", 1+rand.IntN(8))}
		if err := tx.QueryRow(ctx, `update account set n = n + 1 where key = $1 returning n`, r.key).Scan(&r.n); err != nil {
			return nil, err
		}
		if r.id, err = put(ctx, tx, r); err != nil {
			return nil, err
		}
		records = append(records, r)
	}
	for range rand.IntN(3) {
		var r record
		if r.id, err = put(ctx, tx, r); err != nil {
			return nil, err
		}
		records = append(records, r)
	}
	if rand.IntN(3) == 0 { // in a savepoint that is kept or not
		sp, err := tx.Begin(ctx)
		if err != nil {
			return nil, err
		}
		var r record
		if r.id, err = put(ctx, sp, r); err != nil {
			return nil, err
		}
		if rand.IntN(2) == 0 {
			err = sp.Rollback(ctx)
		} else {
			records = append(records, r)
			err = sp.Commit(ctx)
		}
		if err != nil {
			return nil, err
		}
	}
	doze(pace)
	if rand.IntN(30) == 0 {
		doze(15 * pace)
	}
	if rand.IntN(10) == 0 {
		return nil, tx.Rollback(ctx)
	}
	return records, tx.Commit(ctx)
}

func put(ctx context.Context, tx pgx.Tx, r record) (int64, error) {
	ids, err := platform.Emit(ctx, tx, platform.NewEvent{Type: "model.w", Target: "t", Key: r.key, Data: map[string]int64{"n": r.n}})
	if err != nil {
		return 0, err
	}
	return ids[0], nil
}

// doze is a random time of the world's, not a wait for something.
func doze(most time.Duration) {
	if most > 0 {
		time.Sleep(rand.N(most))
	}
}
