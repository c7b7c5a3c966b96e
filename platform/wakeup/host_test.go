package wakeup_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/host"
	"github.com/pgmill/pgmill/platform/pg"
	"github.com/pgmill/pgmill/platform/platformtest"
	"github.com/pgmill/pgmill/platform/platformtest/fault"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

// soak says that the long form of a test is wanted.
func soak() bool { return os.Getenv("PGMILL_SOAK") == "1" }

// effects is a migrated database with a table of what was handled, and when.
func effects(t *testing.T) (string, *pgxpool.Pool) {
	t.Helper()
	dsn := platformtest.DSN(t)
	pool := platformtest.Pool(t, dsn)
	sql(t, pool, `create table public.effect (sub text, event_id bigint, at timestamptz not null default clock_timestamp(), primary key (sub, event_id))`)
	return dsn, pool
}

func sql(t testing.TB, db pgtest.DB, query string, args ...any) {
	t.Helper()
	pgtest.Exec(t, db, query, args...)
}

func ask[T any](t testing.TB, db pgtest.DB, query string, args ...any) T {
	t.Helper()
	return pgtest.Ask[T](t, db, query, args...)
}

// noting is a subscription that notes each event once.
func noting(name string) platform.Subscription {
	return platform.Subscription{Name: name, Events: []string{"test.*"}, Owners: platform.OwnedBy("test"), From: platform.FromZero,
		HandleBatch: func(ctx context.Context, tx pgx.Tx, events []platform.Event) error {
			ids := make([]int64, len(events))
			for i, e := range events {
				ids[i] = e.ID
			}
			_, err := tx.Exec(ctx, `insert into effect (sub, event_id) select $1, unnest($2::bigint[])`, name, ids)
			return err
		}}
}

// emit emits one event and returns its id.
func emit(t *testing.T, pool *pgxpool.Pool) int64 {
	t.Helper()
	return platformtest.Emit(t, pool, platform.NewEvent{Type: "test.rung", Target: "t"})[0]
}

func allNoted(t *testing.T, pool *pgxpool.Pool, within time.Duration) {
	t.Helper()
	platformtest.WaitWithin(t, pool, within, `select not exists (select from pgmill.event e where not exists (select from effect f where f.event_id = e.id))`)
}

// delays are the times from emit to handler, both by the database's clock, sorted.
func delays(t *testing.T, pool *pgxpool.Pool, sub string) []time.Duration {
	t.Helper()
	rows, err := pool.Query(t.Context(), `select extract(epoch from f.at - e.emitted_at)::float8 from effect f join pgmill.event e on e.id = f.event_id where f.sub = $1 order by 1`, sub)
	if err != nil {
		t.Fatal(err)
	}
	secs, err := pgx.CollectRows(rows, pgx.RowTo[float64])
	if err != nil || len(secs) == 0 {
		t.Fatalf("%d delays, %v", len(secs), err)
	}
	all := make([]time.Duration, len(secs))
	for i, s := range secs {
		all[i] = time.Duration(s * float64(time.Second))
	}
	return all
}

func at(sorted []time.Duration, share float64) time.Duration {
	return sorted[min(len(sorted)-1, int(share*float64(len(sorted))))].Round(10 * time.Microsecond)
}

// N3, N26: everything is done by the poll alone, when LISTEN has nowhere to go; the host
// and the health view say so, and readiness does not care (N76).
func TestPollAloneIsEnough(t *testing.T) {
	t.Parallel()
	dsn, pool := effects(t)
	w := platformtest.HostWith(t, &host.Worker{Database: dsn, ListenURL: "postgres://127.0.0.1:1/nowhere"}, noting("a.poll"))
	for range 20 {
		emit(t, pool)
		allNoted(t, pool, 5*time.Second)
	}
	if why := w.Degraded(); !slices.Equal(why, []platform.Reason{platform.ReasonListenUnavailable}) {
		t.Errorf("degraded: %v", why)
	}
	if why := w.NotReady(); len(why) > 0 {
		t.Errorf("not ready: %v", why)
	}
	platformtest.WaitFor(t, pool, `select 'listen_unavailable' = any (reasons) from mill.health where component = 'workers'`)
	d := delays(t, pool, "a.poll")
	t.Logf("poll alone: p50 %v, worst %v", at(d, 0.5), d[len(d)-1])
	if d[len(d)/2] > time.Second {
		t.Errorf("half of the events took over %v", d[len(d)/2])
	}
}

// N50, DESIGN 6: the second of two emits 50 ms apart starts as fast as the first,
// long after the last poll, too.
func TestBellWakesAtOnceAndAgain(t *testing.T) {
	t.Parallel()
	dsn, pool := effects(t)
	w := platformtest.HostWith(t, &host.Worker{Database: dsn, Poll: 4 * time.Second, LeaseTTL: 10 * time.Second}, noting("a.bell"))
	hearing(t, w)
	var second []int64
	for range 10 {
		emit(t, pool)
		pass(50 * time.Millisecond)
		second = append(second, emit(t, pool))
		pass(300 * time.Millisecond)
	}
	pass(5 * time.Second) // longer than any bell is armed by one poll
	last := emit(t, pool)
	allNoted(t, pool, 10*time.Second)
	took := ask[float64](t, pool, `select extract(epoch from f.at - e.emitted_at)::float8 from effect f join pgmill.event e on e.id = f.event_id where e.id = $1`, last)
	p50 := ask[float64](t, pool, `select percentile_cont(0.5) within group (order by extract(epoch from f.at - e.emitted_at)::float8)
		from effect f join pgmill.event e on e.id = f.event_id where e.id = any ($1)`, second)
	t.Logf("second of two: p50 %.1f ms; after five quiet seconds: %.1f ms", 1000*p50, 1000*took)
	if p50 > 0.25 || took > 2 {
		t.Errorf("second of two: p50 %.3f s; after a quiet time: %.3f s", p50, took)
	}
}

// pass lets time pass: what happens by itself in it is what is looked at.
func pass(d time.Duration) { <-time.After(d) }

// hearing waits until a host's bell is proven.
func hearing(t *testing.T, w *host.Worker) {
	t.Helper()
	if w.ListenURL == "" {
		pgtest.NeedsEars(t)
	}
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for deadline := time.Now().Add(20 * time.Second); len(w.Degraded()) > 0; <-look.C {
		if time.Now().After(deadline) {
			t.Fatalf("still %v", w.Degraded())
		}
	}
}

// F42: the LISTEN connection is ended again and again, half of the times frozen
// without a word. Each event is handled by the poll at the latest, the host hears
// again soon after, and no connection is left behind.
func TestListenLostAgainAndAgain(t *testing.T) {
	t.Parallel()
	rounds, calm := 8, 700*time.Millisecond
	if soak() {
		rounds, calm = 60, 2*time.Second
	}
	dsn, pool := effects(t)
	wire := fault.NewWire(t, pgtest.Direct(t, dsn))
	w := platformtest.HostWith(t, &host.Worker{Database: dsn, ListenURL: wire.DSN, Poll: time.Second, MaxConns: 2}, noting("a.lost"))
	hearing(t, w)
	for i := range rounds {
		if i%2 == 0 {
			sql(t, pool, `select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and query = 'listen pgmill'`)
		} else {
			wire.Freeze()
		}
		for range 3 {
			emit(t, pool)
			pass(calm / 3)
		}
		wire.Mend()
	}
	allNoted(t, pool, 10*time.Second)
	d := delays(t, pool, "a.lost")
	t.Logf("%d events while LISTEN was lost %d times: p50 %v, worst %v", len(d), rounds, at(d, 0.5), d[len(d)-1])
	if worst := d[len(d)-1]; worst > 5*time.Second {
		t.Errorf("an event waited %v", worst)
	}
	hearing(t, w)
	id := emit(t, pool)
	platformtest.WaitFor(t, pool, `select exists (select from effect where event_id = $1)`, id)
	// As many as the pools may have, and one that listens: those that were lost are gone.
	platformtest.WaitFor(t, pool, `select count(*) <= 9 and count(*) filter (where query = 'listen pgmill') = 1
		from pg_stat_activity where datname = current_database() and application_name = 'pgmill ' || $1`, w.ID())
}

// listener counts the notifications of the channel until it is stopped.
func listener(t *testing.T, dsn string) (count func() int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgtest.Direct(t, dsn))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "listen pgmill"); err != nil {
		t.Fatal(err)
	}
	var n atomic.Int64
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer conn.Close(context.Background())
		for {
			if _, err := conn.WaitForNotification(ctx); err != nil {
				return
			}
			n.Add(1)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return func() int { return int(n.Load()) }
}

// publish runs clients that each commit one event after the other for d, and returns
// how long their transactions took, sorted.
func publish(t *testing.T, dsn string, clients int, d time.Duration) []time.Duration {
	t.Helper()
	var mu sync.Mutex
	var all []time.Duration
	var group sync.WaitGroup
	end := time.Now().Add(d)
	for range clients {
		group.Go(func() {
			ctx := context.WithoutCancel(t.Context())
			conn, err := pgx.Connect(ctx, dsn)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close(ctx)
			var mine []time.Duration
			for time.Now().Before(end) {
				began := time.Now()
				if _, err := conn.Exec(ctx, `select mill.emit('test.load', 't')`); err != nil {
					t.Errorf("emit: %v", err)
					return
				}
				mine = append(mine, time.Since(began))
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, mine...)
		})
	}
	group.Wait()
	slices.Sort(all)
	return all
}

// F81: many publishing clients ring few bells, with a host that is awake and with
// none, and their commits do not wait for each other. Only the bells are asserted on:
// how long commits take is the bench's to say, where nothing else runs.
func TestManyEmittersRingFewBells(t *testing.T) {
	if testing.Short() {
		t.Skip("it measures; run it without -short")
	}
	for _, clients := range []int{16, 64} { // one after the other: they measure
		d := 2 * time.Second
		if soak() {
			d = 2 * time.Minute
		}
		dsn, pool := effects(t)
		heard := listener(t, dsn)
		alone := publish(t, dsn, clients, d)
		without := heard()
		w := platformtest.HostWith(t, &host.Worker{Database: dsn, Poll: time.Second}, noting("a.load"))
		hearing(t, w)
		allNoted(t, pool, time.Minute)
		before := heard()
		var burst atomic.Int64 // until the host has seen that it is a crowd
		time.AfterFunc(2*time.Second, func() { burst.Store(int64(heard() - before)) })
		with := publish(t, dsn, clients, d+2*time.Second)
		rung := float64(heard()-before-int(burst.Load())) / d.Seconds()
		allNoted(t, pool, time.Minute)
		t.Logf("%d clients: without a host %d commits, p50 %v, p99 %v, %d bells; with one %d commits, p50 %v, p99 %v, %d bells in the first two seconds and %.1f bells/s then",
			clients, len(alone), at(alone, 0.5), at(alone, 0.99), without, len(with), at(with, 0.5), at(with, 0.99), burst.Load(), rung)
		// Until the host sees a crowd each of its looks costs one bell: few beside what
		// was committed, however slow the machine is to look.
		if burst.Load() > int64(max(130+3*clients, len(with)/20)) {
			t.Errorf("%d clients: %d bells in the first two seconds", clients, burst.Load())
		}
		if rung > 50 {
			t.Errorf("%d clients: %.1f bells/s with a host that is awake, at most 50", clients, rung)
		}
		if rate := float64(without) / d.Seconds(); rate > 50 {
			t.Errorf("%d clients: %.1f bells/s and nobody there to hear them", clients, rate)
		}
		platformtest.Stop(t, w)
	}
}

// While a busy host keeps emitters silent it wakes the others: events that only
// another host can handle do not wait for that one's poll.
func TestSilentEmittersDoNotLetOtherHostsSleep(t *testing.T) {
	t.Parallel()
	dsn, pool := effects(t)
	long := 20 * time.Second
	a := platformtest.HostWith(t, &host.Worker{Database: dsn, Poll: time.Second, LeaseTTL: 3 * time.Second}, noting("a.mine"))
	b := platformtest.HostWith(t, &host.Worker{Database: dsn, Poll: long, LeaseTTL: long},
		platform.Subscription{Name: "b.other", Events: []string{"other.rare"}, Owners: platform.OwnedBy("test"), From: platform.FromZero,
			Handle: func(ctx context.Context, tx pgx.Tx, e platform.Event) error {
				_, err := tx.Exec(ctx, `insert into effect (sub, event_id) values ('b.other', $1)`, e.ID)
				return err
			}})
	hearing(t, a)
	hearing(t, b)
	platformtest.WaitFor(t, pool, `select count(*) = 2 from mill.instances where live`)
	pass(1100 * time.Millisecond) // a poll of a, which learns that there is another host
	done := make(chan []time.Duration, 1)
	go func() { done <- publish(t, dsn, 8, 4*time.Second) }()
	for range 30 {
		platformtest.Emit(t, pool, platform.NewEvent{Type: "other.rare", Target: "t"})
		pass(100 * time.Millisecond)
	}
	<-done
	platformtest.WaitFor(t, pool, `select count(*) = 30 from effect where sub = 'b.other'`)
	d := delays(t, pool, "b.other")
	t.Logf("the other host, under load: p50 %v, p95 %v, worst %v", at(d, 0.5), at(d, 0.95), d[len(d)-1])
	if at(d, 0.9) > long/4 {
		t.Errorf("p90 %v; its poll is each %v", at(d, 0.9), long)
	}
}

// F81: a session that listens and sits in a transaction stops the queue from being
// cleaned; nobody else is stopped by it.
func TestStuckListenerStopsNobody(t *testing.T) {
	t.Parallel()
	dsn, pool := effects(t)
	stuck, err := pgx.Connect(t.Context(), pgtest.Direct(t, dsn))
	if err != nil {
		t.Fatal(err)
	}
	defer stuck.Close(context.Background())
	for _, s := range []string{"listen pgmill", "begin", "select 1"} {
		if _, err := stuck.Exec(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	platformtest.Host(t, dsn, noting("a.stuck"))
	publish(t, dsn, 4, time.Second)
	allNoted(t, pool, 20*time.Second)
	if s := ask[string](t, pool, `select status from mill.health where component = 'bell'`); s != "ok" {
		t.Errorf("bell %s: the queue is nearly empty", s)
	}
}

// F81: from a tenth full the queue is an alarm, and from half full nobody rings any
// more, so that it never fails a commit. Fills 800 MB: in soak only.
func TestFullQueueIsAnAlarmAndNoFailure(t *testing.T) {
	if !soak() {
		t.Skip("fills the notification queue: PGMILL_SOAK=1")
	}
	s := fault.NewServer(t, nil)
	pool, err := pgxpool.New(t.Context(), s.DSN)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := pg.Migrate(t.Context(), s.DSN, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	stuck, err := pgx.Connect(t.Context(), s.DSN)
	if err != nil {
		t.Fatal(err)
	}
	defer stuck.Close(context.Background())
	for _, q := range []string{"listen pgmill", "begin", "select 1"} {
		if _, err := stuck.Exec(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	for usage := 0.0; usage < 0.11; usage = ask[float64](t, pool, `select pg_notification_queue_usage()`) {
		sql(t, pool, `select pg_notify('filler', n || repeat('x', 7900)) from generate_series(1, 5000) n`)
	}
	if why := ask[[]string](t, pool, `select reasons from mill.health where component = 'bell'`); !slices.Equal(why, []string{"notify_queue_filling"}) {
		t.Errorf("bell: %v", why)
	}
	for usage := 0.0; usage < 0.51; usage = ask[float64](t, pool, `select pg_notification_queue_usage()`) {
		sql(t, pool, `select pg_notify('filler', n || repeat('x', 7900)) from generate_series(1, 20000) n`)
	}
	sql(t, pool, `select pgmill.arm(true)`)
	was := ask[float64](t, pool, `select pg_notification_queue_usage()`)
	for range 50 {
		sql(t, pool, `select mill.emit('test.full', 't')`)
	}
	if is := ask[float64](t, pool, `select pg_notification_queue_usage()`); is != was {
		t.Errorf("the queue went from %v to %v: somebody still rings", was, is)
	}
}

// F81: with pgmill.quiet = on a transaction that emits can be prepared; without, the
// bell that it rang forbids it. It is found by the poll.
func TestQuietTransactionsCanBePrepared(t *testing.T) {
	t.Parallel()
	dsn, pool := effects(t)
	w := platformtest.Host(t, dsn, noting("a.quiet"))
	hearing(t, w)
	pass(300 * time.Millisecond) // a poll with the bell heard: from here on emitters ring
	prepare := func(quiet bool) error {
		conn, err := pgx.Connect(t.Context(), dsn)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		for _, s := range []string{"begin", "select set_config('pgmill.quiet', case when " + map[bool]string{true: "true", false: "false"}[quiet] + " then 'on' else 'off' end, true)",
			"select mill.emit('test.prepared', 't')", "prepare transaction '" + w.ID() + "'"} {
			if _, err := conn.Exec(t.Context(), s); err != nil {
				return err
			}
		}
		return nil
	}
	var refused *pgconn.PgError
	if err := prepare(false); !errors.As(err, &refused) || refused.Code != "0A000" {
		t.Errorf("prepared with a bell: %v; want 0A000", err)
	}
	if err := prepare(true); err != nil {
		t.Fatalf("prepare, quiet: %v", err)
	}
	first := emit(t, pool)
	platformtest.WaitFor(t, pool, `select exists (select from effect where event_id = $1)`, first)
	if n := ask[int](t, pool, `select count(*) from effect`); n != 1 {
		t.Errorf("%d effects, want that of the event beside the prepared one", n)
	}
	sql(t, pool, `commit prepared '`+w.ID()+`'`)
	platformtest.WaitFor(t, pool, `select count(*) = 2 from effect`)
}
