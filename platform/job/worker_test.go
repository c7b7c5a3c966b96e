package job_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// While a worker's transaction that claimed is open nobody else is admitted, so the
// server ends one that is left idle. A worker that is stricter stays so.
func TestAClaimLeftOpenHoldsNobodyForLong(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const timeout = `idle_in_transaction_session_timeout`
	for set, want := range map[string]string{"0": "5s", "1h": "5s", "2s": "2s"} {
		tx, err := w.pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got string
		if _, err := tx.Exec(t.Context(), `set `+timeout+` = '`+set+`'`); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), `select mill.claim_jobs('w1', '{job.idle}')`); err != nil {
			t.Fatal(err)
		}
		if err := tx.QueryRow(t.Context(), `show `+timeout).Scan(&got); err != nil || got != want {
			t.Errorf("set to %s, it is %s after a claim, %v; want %s", set, got, err, want)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	id := w.submit("job.idle", `{}`, `{}`)
	tx, err := w.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	if _, err := tx.Exec(t.Context(), `select mill.claim_jobs('w1', '{job.idle}')`); err != nil {
		t.Fatal(err)
	}
	w.exec(`set lock_timeout = '30s'; select mill.claim_jobs('w2', '{job.idle}')`) // waits until then
	if got := ask[string](w, `select coalesce(max(worker), 'nobody') from pgmill.job_lease`); got != "w2" {
		t.Errorf("the job %s is %s's, want w2's", id, got)
	}
}

// A transaction whose snapshot is older than what runs would be beyond every limit: it is
// told so, whether or not it has looked at anything yet, and nothing is claimed.
func TestClaimsNeedReadCommitted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_ = w.rescuer()
	_ = w.submit("job.iso", `{}`, `{}`)
	for level, refused := range map[pgx.TxIsoLevel]bool{pgx.ReadCommitted: false, pgx.ReadUncommitted: false, pgx.RepeatableRead: true, pgx.Serializable: true} {
		for _, claim := range []string{`select count(*) from mill.claim_jobs('w1', '{job.iso}')`, `select count(*) from pgmill.admit('me', '{job.iso}', 1)`} {
			tx, err := w.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
			if err != nil {
				t.Fatal(err)
			}
			var n int
			err = tx.QueryRow(t.Context(), claim).Scan(&n)
			_ = tx.Rollback(t.Context())
			var pe *pgconn.PgError
			switch {
			case !refused && (err != nil || n != 1):
				t.Errorf("%s, %s: %d, %v; want a job", level, claim, n, err)
			case refused && (!errors.As(err, &pe) || pe.Code != "MI001" || !strings.Contains(pe.Message, "READ COMMITTED")):
				t.Errorf("%s, %s: %d, %v; want MI001", level, claim, n, err)
			}
		}
	}
}
