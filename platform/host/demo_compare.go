package host

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/jackc/pgx/v5"
)

// branchBalance is what pgbench and the subscription say of one branch.
type branchBalance struct {
	Bid     int   `json:"bid"`
	Pgbench int64 `json:"pgbench"`
	Demo    int64 `json:"demo"`
}

// demoReport is what a demo found out.
type demoReport struct {
	Seconds    int             `json:"seconds"`
	Clients    int             `json:"clients"`
	Scale      int             `json:"scale"`
	Transfers  int64           `json:"transfers"`
	TPS        float64         `json:"tps"`
	Lag        int64           `json:"lag"`
	SumPgbench int64           `json:"sum_pgbench"`
	SumDemo    int64           `json:"sum_demo"`
	Different  int             `json:"different"`
	Equal      bool            `json:"equal"`
	Branches   []branchBalance `json:"branches"`
}

// balances holds the writers still, waits until every transfer is handled and reads
// both sides. The lock waits for transfers under way and keeps out new ones, of any
// other demo too; a reader is not in its way.
func (d *demo) balances(ctx context.Context, show func(demoLag)) (all []branchBalance, err error) {
	if err := d.untilHandled(ctx, show); err != nil { // most of the wait without the lock
		return nil, err
	}
	err = pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `lock table pgmill_demo.pgbench_history in share mode`); err != nil {
			return fmt.Errorf("hold pgbench_history still: %w", err)
		}
		if err := d.untilHandled(ctx, show); err != nil {
			return err
		}
		rows, _ := tx.Query(ctx, `
			select bid, coalesce(p.bbalance, 0)::bigint, coalesce(b.balance, 0)
			from pgmill_demo.pgbench_branches p
			full join demo.branch_balance b using (bid)
			order by bid`)
		all, err = pgx.CollectRows(rows, pgx.RowToStructByPos[branchBalance])
		if err != nil {
			return fmt.Errorf("read the balances: %w", err)
		}
		return nil
	})
	return all, err
}

// compare fills in the report's sums and verdict.
func (r *demoReport) compare(branches []branchBalance) {
	r.Branches = branches
	r.SumPgbench, r.SumDemo, r.Different = 0, 0, 0
	for _, b := range branches {
		r.SumPgbench += b.Pgbench
		r.SumDemo += b.Demo
		if b.Pgbench != b.Demo {
			r.Different++
		}
	}
	r.Equal = r.Different == 0
}

// demoRows is how many branches a person wants to see.
const demoRows = 20

// write prints the report for a person: all branches if they are few, else those
// that differ, and the sums.
func (r demoReport) write(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "branch\tpgbench_branches\tdemo.branch_balance\t\n")
	printed := 0
	for _, b := range r.Branches {
		differs := b.Pgbench != b.Demo
		if len(r.Branches) > demoRows && (!differs || printed == demoRows) {
			continue
		}
		printed++
		fmt.Fprintf(w, "%d\t%d\t%d\t%s\n", b.Bid, b.Pgbench, b.Demo, verdict(!differs, "", "  differs"))
	}
	fmt.Fprintf(w, "sum of %d\t%d\t%d\t%s\n", len(r.Branches), r.SumPgbench, r.SumDemo,
		verdict(r.Equal, "  equal", fmt.Sprintf("  %d differ", r.Different)))
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "%d transfers in %d s (%.0f/s, %d clients, scale %d), lag %d\n",
		r.Transfers, r.Seconds, r.TPS, r.Clients, r.Scale, r.Lag)
	return err
}

func verdict(ok bool, yes, no string) string {
	if ok {
		return yes
	}
	return no
}
