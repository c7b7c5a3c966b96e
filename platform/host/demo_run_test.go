package host

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	_ "github.com/pgmill/pgmill/functions/demo"
	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/pg"
	faults "github.com/pgmill/pgmill/platform/platformtest/fault"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

// The demo on real traffic: pgbench, the trigger, the subscription's own handler.
func TestDemoBalancesEqualPgbenchsOwn(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	d := demoDatabase(t)
	followDemo(t, d.pool)

	first := runDemo(t, d, demoArgs{seconds: 2, clients: 2})
	if !first.Equal || first.Transfers == 0 || first.Scale != 2 || len(first.Branches) != 2 || first.SumPgbench != first.SumDemo {
		t.Fatalf("first run: %+v; want equal balances of 2 branches and transfers", first)
	}
	again := runDemo(t, d, demoArgs{seconds: 1, clients: 1})
	if !again.Equal || again.Scale != 2 || demoMoved(t, d) != first.Transfers+again.Transfers {
		t.Fatalf("second run: %+v after %d transfers, history has %d; want it to add to what is there", again, first.Transfers, demoMoved(t, d))
	}
	larger := runDemo(t, d, demoArgs{seconds: 1, clients: 3})
	if !larger.Equal || larger.Scale != 3 || demoMoved(t, d) != larger.Transfers {
		t.Fatalf("a run with more clients: %+v, history has %d; want tables made anew with 3 branches", larger, demoMoved(t, d))
	}

	// It must be able to fail: 1 in one branch, -1 in the other leave the sums equal.
	_, err := d.pool.Exec(ctx, `update demo.branch_balance set balance = balance + case bid when 1 then 1 else -1 end where bid in (1, 2)`)
	if err != nil {
		t.Fatal(err)
	}
	if wrong := runDemo(t, d, demoArgs{seconds: 1, clients: 1}); wrong.Equal || wrong.Different != 2 || wrong.SumPgbench != wrong.SumDemo {
		t.Errorf("after tampering: %+v; want 2 different branches and equal sums", wrong)
	}
	if mended := runDemo(t, d, demoArgs{seconds: 1, clients: 1, anew: true}); !mended.Equal {
		t.Errorf("after --init: %+v; want equal", mended)
	}
}

func TestDemoLeavesTablesItDidNotMakeAlone(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, theirs, check string }{
		{
			name:   "pgbench tables where the demo's would be",
			theirs: `create schema pgmill_demo; create table pgmill_demo.pgbench_branches (bid int); insert into pgmill_demo.pgbench_branches values (7)`,
			check:  `select bid from pgmill_demo.pgbench_branches`,
		},
		{
			name:   "a table of balances",
			theirs: `create schema demo; create table demo.branch_balance (bid int); insert into demo.branch_balance values (7)`,
			check:  `select bid from demo.branch_balance`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			d := demoDatabase(t)
			if _, err := d.pool.Exec(ctx, tt.theirs); err != nil {
				t.Fatal(err)
			}
			_, err := d.run(ctx, demoArgs{seconds: 1, clients: 1}, newProgress(&bytes.Buffer{}))
			var bid int
			if scan := d.pool.QueryRow(ctx, tt.check).Scan(&bid); !errors.Is(err, errNotDemos) || scan != nil || bid != 7 {
				t.Errorf("run = %v, then %d, %v; want %v and their row", err, bid, scan, errNotDemos)
			}
		})
	}
}

func TestDemoLeavesPgbenchTablesInPublicAlone(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	d := demoDatabase(t)
	theirs := d.pgbench
	theirs.schema = "public"
	if err := theirs.initialize(ctx, 1); err != nil {
		t.Fatal(err)
	}
	followDemo(t, d.pool)
	report := runDemo(t, d, demoArgs{seconds: 1, clients: 1})
	var rows int
	err := d.pool.QueryRow(ctx, `select count(*) from public.pgbench_history`).Scan(&rows)
	if err != nil || rows != 0 || !report.Equal {
		t.Errorf("public.pgbench_history has %d rows, %v, report %+v; want none, and equal", rows, err, report)
	}
}

// With no host alive the demo runs the subscription itself, the real one.
func TestDemoIsItsOwnHostIfThereIsNone(t *testing.T) {
	t.Parallel()
	d := demoDatabase(t)
	log := slog.New(slog.DiscardHandler)
	var said bytes.Buffer
	report, err := demoOn(t.Context(), Config{Database: d.pgbench.dsn}, demoArgs{seconds: 2, clients: 4}, platform.Default, log, newProgress(&said))
	if err != nil || !report.Equal || report.Transfers == 0 || len(report.Branches) != 4 {
		t.Errorf("demo = %+v, %v; want equal balances of 4 branches\n%s", report, err, &said)
	}
	for _, want := range []string{"this process runs it", "emitted"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("said %q; want %q in it", &said, want)
		}
	}

	_, err = demoOn(t.Context(), Config{Database: d.pgbench.dsn}, demoArgs{seconds: 1, clients: 1}, platform.NewRegistry(), log, newProgress(&said))
	if err == nil || !strings.Contains(err.Error(), "functions/demo") {
		t.Errorf("demo of a build without the function = %v; want what to import", err)
	}
}

func TestDemoTrafficRunsUntilItIsStopped(t *testing.T) {
	t.Parallel()
	d := demoDatabase(t)
	followDemo(t, d.pool)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- runDemoTraffic(ctx, Config{Database: d.pgbench.dsn}, slog.New(slog.DiscardHandler))
	}()
	for rows := 0; rows == 0; {
		err := d.pool.QueryRow(ctx, `select count(*), pg_sleep(0.05)::text from demo.branch_balance`).Scan(&rows, nil)
		var pe *pgconn.PgError
		if err != nil && !(errors.As(err, &pe) && pe.Code == "42P01") { // until it is made
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("runDemoTraffic = %v after its end; want nil", err)
	}
}

// The balances are compared with the writers held still, whoever they are.
func TestDemoComparesBesideOtherTraffic(t *testing.T) {
	t.Parallel()
	d := demoDatabase(t)
	followDemo(t, d.pool)
	runDemo(t, d, demoArgs{seconds: 1, clients: 2})
	other := make(chan error, 1)
	go func() {
		_, err := d.pgbench.run(t.Context(), 4, 1, 0)
		other <- err
	}()
	if report := runDemo(t, d, demoArgs{seconds: 1, clients: 1}); !report.Equal {
		t.Errorf("beside other traffic: %+v; want equal", report)
	}
	if err := <-other; err != nil {
		t.Error(err)
	}
}

func TestDemoSaysWhyTransfersAreNotHandled(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	d := demoDatabase(t)
	declareDemo(t, d.pool)
	if _, err := d.pool.Exec(ctx, `select mill.emit('pgbench.transfer', 'branch/1'), mill.pause_subscription($1)`, demoFunction); err != nil {
		t.Fatal(err)
	}
	_, err := d.run(ctx, demoArgs{seconds: 1, clients: 1}, newProgress(&bytes.Buffer{}))
	if !errors.Is(err, errDemoStuck) || !strings.Contains(err.Error(), "paused") {
		t.Errorf("run = %v; want %v with the reason paused", err, errDemoStuck)
	}
}

// pgbench's search_path does not get through a pooler: the demo says what to set, and
// goes past it.
func TestDemoNeedsAWayPastThePooler(t *testing.T) {
	t.Parallel()
	d := demoDatabase(t)
	pooler := faults.NewPooler(t, d.pgbench.dsn)
	if _, err := openDemo(t.Context(), Config{Database: pooler.DSN}); !errors.Is(err, errDemoPooled) {
		t.Errorf("openDemo behind a pooler = %v, want %v", err, errDemoPooled)
	}
	past, err := openDemo(t.Context(), Config{Database: pooler.DSN, ListenURL: d.pgbench.dsn})
	if err != nil {
		t.Fatal(err)
	}
	past.pool.Close()
}

func demoDatabase(t *testing.T) *demo {
	t.Helper()
	path, err := findPgbench()
	if err != nil {
		t.Skipf("this test needs pgbench: %v", err)
	}
	dsn := pgtest.Direct(t, pgtest.Database(t, func(ctx context.Context, dsn string) error {
		_, err := pg.Migrate(ctx, dsn, slog.New(slog.DiscardHandler))
		return err
	}, pg.CodeHash())) // pgbench needs its search_path
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return &demo{pool: pool, pgbench: pgbench{path: path, dsn: dsn, schema: demoSchema}}
}

func runDemo(t *testing.T, d *demo, a demoArgs) demoReport {
	t.Helper()
	var said bytes.Buffer
	report, err := d.run(t.Context(), a, newProgress(&said))
	if err != nil {
		t.Fatalf("demo %+v: %v\n%s", a, err, &said)
	}
	return report
}

func demoMoved(t *testing.T, d *demo) (rows int64) {
	t.Helper()
	if err := d.pool.QueryRow(t.Context(), `select count(*) from pgmill_demo.pgbench_history`).Scan(&rows); err != nil {
		t.Fatal(err)
	}
	return rows
}

// declareDemo makes the subscription known as a host would.
func declareDemo(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	_, err := pool.Exec(t.Context(), `
		insert into pgmill.function (name, kind, module, listens) values ('demo.branch_balance', 'subscription', 'demo', '{pgbench.transfer}');
		insert into pgmill.subscription (name, likes, order_by, shards, batch, max_attempts, on_poison, replayable, timeout)
		values ('demo.branch_balance', '{pgbench.transfer}', 'target', 1, 500, 5, 'hold', false, '30 s');
		insert into pgmill.shard (subscription, shard) values ('demo.branch_balance', 0);
		insert into pgmill.cursor (subscription, shard, n, pos) values ('demo.branch_balance', 0, 0, 0)`)
	if err != nil {
		t.Fatal(err)
	}
}

// followDemo is the least host there can be: it hands the registered function what comes,
// effect and cursor in one transaction, until the test ends.
func followDemo(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	declareDemo(t, pool)
	only, err := platform.Default.Only(demoFunction)
	if err != nil {
		t.Fatal(err)
	}
	handle := platform.Of[platform.Subscription](only)[0].HandleBatch
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if err := demoStep(ctx, pool, handle); err != nil && ctx.Err() == nil {
				t.Errorf("follow: %v", err)
				return
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
}

func demoStep(ctx context.Context, pool *pgxpool.Pool, handle func(context.Context, pgx.Tx, []platform.Event) error) error {
	if _, err := pool.Exec(ctx, `select pgmill.advance()`); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var at, pos, head int64
		err := tx.QueryRow(ctx, `select n, pos, pgmill.head() from pgmill.cursor where subscription = $1 order by n desc limit 1`, demoFunction).Scan(&at, &pos, &head)
		if err != nil {
			return err
		}
		rows, _ := tx.Query(ctx, `
			select pos, id, type, target, coalesce(key, ''), scope, coalesce(trace_id, ''), emitted_at, data
			from pgmill.read_shard($1, $2, 500, '{pgbench.transfer}', 1, 0, false)`, pos, head)
		events, err := pgx.CollectRows(rows, pgx.RowToStructByPos[platform.Event])
		if err != nil {
			return err
		}
		if len(events) == 0 {
			_, err = tx.Exec(ctx, `select pg_sleep(0.02)`) // the least poll there can be
			return err
		}
		if err := handle(ctx, tx, events); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `insert into pgmill.cursor (subscription, shard, n, pos) values ($1, 0, $2, $3)`, demoFunction, at+1, events[len(events)-1].Pos)
		return err
	})
}
