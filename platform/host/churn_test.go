package host_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/platformtest"
)

// F44, its claims part: claims come and go under an old snapshot, so that none of the
// rows they leave can be vacuumed. A claim is made and fetched as fast as before, of
// the same shards, too.
func TestOldSnapshotDoesNotSlowTheClaims(t *testing.T) {
	t.Parallel()
	const each, churn = 8, 16_000
	dsn := platformtest.DSN(t)
	pool := platformtest.Pool(t, dsn)
	sql(t, pool, `create table public.effect (sub text, event_id bigint, at timestamptz default clock_timestamp())`)
	var subs []platform.Subscription
	for i := range 2 * each { // each gets one event, and its first claim for it
		s := noting(fmt.Sprintf("a.s%d", i), nil)
		s.Events = []string{fmt.Sprintf("test.s%d", i)}
		s.Handle = func(ctx context.Context, tx pgx.Tx, e platform.Event) error {
			_, err := tx.Exec(ctx, `insert into effect values ($1, $2)`, s.Name, e.ID)
			return err
		}
		subs = append(subs, s)
	}
	old, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer old.Rollback(context.Background())
	if _, err := old.Exec(t.Context(), `select pg_current_xact_id()`); err != nil {
		t.Fatal(err)
	}
	platformtest.Host(t, dsn, subs...)
	median := func(from int) float64 {
		t.Helper()
		var took []float64
		for i := range each {
			id := platformtest.Emit(t, pool, platform.NewEvent{Type: fmt.Sprintf("test.s%d", from+i), Target: "t"})[0]
			platformtest.WaitWithin(t, pool, 10*time.Second, `select exists (select from effect where event_id = $1)`, id)
			took = append(took, ask[float64](t, pool, `select extract(epoch from f.at - e.emitted_at)::float8 from effect f join pgmill.event e on e.id = f.event_id where e.id = $1`, id))
		}
		slices.Sort(took)
		return took[each/2]
	}
	before := median(0)
	sql(t, pool, fmt.Sprintf(`
		do $$ declare claim bigint; begin
		  for i in 1..%[1]d loop
		    insert into pgmill.river_job (args, kind, queue, max_attempts, unique_key, unique_states, state, attempted_at, attempted_by)
		    values ('{"shard": 0}', 'gone', 'subscription', 1, pgmill.claim_key('a.s' || %[2]d + i %% %[2]d, 0), b'01000001', 'running', now(), array['gone']) returning id into claim;
		    delete from pgmill.river_job where id = claim;
		    if i %% 100 = 0 then commit; end if;
		  end loop;
		end $$`, churn, each))
	after := median(each)
	t.Logf("from emit to handler with a new claim: median %.3f s, after %d claims %.3f s", before, churn, after)
	if after > 3*before+0.1 {
		t.Errorf("a new claim took %.3f s, after %d claims under an old snapshot %.3f s", before, churn, after)
	}
}
