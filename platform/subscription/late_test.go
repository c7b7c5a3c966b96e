package subscription_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
)

// A handler that does not look at its context must not hold a slot, a claim and its
// rows for ever: it is left behind, the attempt counts, and its session ends.
func TestHandlerThatIgnoresItsContextIsLeftBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	free := make(chan struct{})
	t.Cleanup(func() { close(free) })
	var stuck atomic.Bool
	sub := platform.Subscription{
		Name: "late.one", Events: []string{"late.happened"}, Owners: platform.OwnedBy("late"), From: platform.FromZero,
		Timeout: time.Second, MaxAttempts: 3,
		Handle: func(ctx context.Context, tx pgx.Tx, e platform.Event) error {
			if _, err := tx.Exec(ctx, "insert into effect (event, pos) values ($1, $2)", e.ID, e.Pos); err != nil {
				return err
			}
			if stuck.CompareAndSwap(false, true) {
				<-free
			}
			return nil
		},
	}
	w.exec("select mill.emit('late.happened', 'a')")
	w.host(sub)
	w.wait("select lag_events = 0 from mill.subscriptions where name = 'late.one'")
	if got := ask[int](w, "select count(*) from effect"); got != 1 || !stuck.Load() {
		t.Errorf("%d effects, want the one of the second call", got)
	}
}
