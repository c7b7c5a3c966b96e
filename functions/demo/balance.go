package demo

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
)

// Transferred is the type of the event that the trigger on pgbench_history emits.
// Its target is the branch, "branch/3".
const Transferred = "pgbench.transfer"

// Transfer is that event's data.
type Transfer struct {
	Teller  int64 `json:"teller"`
	Account int64 `json:"account"`
	Delta   int64 `json:"delta"`
}

func init() {
	platform.Register(platform.Subscription{
		Name:        "demo.branch_balance",
		Events:      []string{Transferred},
		Owners:      platform.OwnedBy("demo"),
		Key:         platform.ByTarget,
		From:        platform.FromZero,
		HandleBatch: addDeltas,
	})
}

// addDeltas adds a batch in one statement. The rows are locked in the order of bid,
// so that shards, should there be several, never wait for each other in a circle.
func addDeltas(ctx context.Context, tx pgx.Tx, events []platform.Event) error {
	bids := make([]int32, len(events))
	deltas := make([]int64, len(events))
	for i, e := range events {
		transfer, err := platform.Data[Transfer](e)
		if err == nil {
			bids[i], err = branch(e.Target)
		}
		if err != nil {
			return &platform.BatchError{Index: i, Err: err}
		}
		deltas[i] = transfer.Delta
	}
	_, err := tx.Exec(ctx, `
		insert into demo.branch_balance as b (bid, balance)
		select t.bid, sum(t.delta)
		from unnest($1::int[], $2::bigint[]) as t (bid, delta)
		group by t.bid
		order by t.bid
		on conflict (bid) do update set balance = b.balance + excluded.balance`, bids, deltas)
	return err
}

// branch reads the number out of a target; another form is final for the event.
func branch(target string) (int32, error) {
	digits, ok := strings.CutPrefix(target, "branch/")
	bid, err := strconv.ParseInt(digits, 10, 32)
	if !ok || err != nil {
		return 0, platform.Fail(platform.ReasonBadData, fmt.Errorf("target %q is not branch/<number>", target))
	}
	return int32(bid), nil
}
