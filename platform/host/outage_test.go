package host_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/host"
	"github.com/pgmill/pgmill/platform/pg"
	"github.com/pgmill/pgmill/platform/platformtest"
	"github.com/pgmill/pgmill/platform/platformtest/fault"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

// migrated is a server of the test's own with a migrated database.
func migrated(t *testing.T, settings map[string]string) (*fault.Server, *pgxpool.Pool) {
	t.Helper()
	s := fault.NewServer(t, settings)
	if _, err := pg.Migrate(t.Context(), s.DSN, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	pool := platformtest.Pool(t, s.DSN)
	sql(t, pool, effectTable)
	return s, pool
}

// emitters emit one event after the other, whatever the database does, until stop;
// it answers how many were acknowledged.
func emitters(t *testing.T, dsn string, clients int) (stop func() int64) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var acknowledged atomic.Int64
	var group sync.WaitGroup
	for range clients {
		group.Go(func() {
			for ctx.Err() == nil {
				conn, err := pgx.Connect(ctx, dsn)
				for err == nil {
					if _, err = conn.Exec(ctx, `select mill.emit('test.load', 't')`); err == nil {
						acknowledged.Add(1)
					}
					select {
					case <-ctx.Done():
						_ = conn.Close(context.Background())
						return
					case <-time.After(5 * time.Millisecond):
					}
				}
				if conn != nil {
					_ = conn.Close(context.Background())
				}
				select {
				case <-ctx.Done():
				case <-time.After(100 * time.Millisecond):
				}
			}
		})
	}
	done := sync.OnceFunc(func() {
		cancel()
		group.Wait()
	})
	t.Cleanup(done)
	return func() int64 {
		done()
		return acknowledged.Load()
	}
}

// settled waits until all is delivered, once, and checks that no acknowledged event
// is missing.
func settled(t *testing.T, pool *pgxpool.Pool, acknowledged int64, subs ...string) {
	t.Helper()
	notedOnce(t, pool, 30*time.Second, subs...)
	if n := ask[int64](t, pool, `select count(*) from pgmill.event where type = 'test.load'`); n < acknowledged {
		t.Errorf("%d events are there, %d were acknowledged", n, acknowledged)
	}
	platformtest.Invariants(t, pool)
}

func instances(t *testing.T, pool *pgxpool.Pool) string {
	t.Helper()
	return ask[string](t, pool, `select string_agg(id || ' ' || (deregistered_at is null), ', ' order by id) from pgmill.instance`)
}

// N74, F83: a server that is down when the host starts is waited for, with a line a second at
// the most, and the host is ready within ten seconds of its return.
func TestServerDownAtBoot(t *testing.T) {
	t.Parallel()
	away := 4 * time.Second
	if soak() {
		away = time.Minute
	}
	s, pool := migrated(t, nil)
	pool.Close()
	s.Stop()
	log, began := &journal{}, time.Now()
	w := run(t, &host.Worker{Database: s.DSN, Log: log.logger(), Poll: 200 * time.Millisecond}, noting("a.boot", nil))
	becomes(t, w, platform.ReasonDatabaseUnreachable, 10*time.Second)
	<-time.After(away)
	log.atMostOneASecond(t, began)
	s.Start()
	back := time.Now()
	becomes(t, w, "", 10*time.Second)
	t.Logf("ready %v after the server", time.Since(back))
	pool = platformtest.Pool(t, s.DSN)
	platformtest.Emit(t, pool, platform.NewEvent{Type: "test.load", Target: "t"})
	settled(t, pool, 1, "a.boot")
}

// F83, DESIGN 4: after a pause of the server all leases have run out at once. No host
// takes that for the death of the others; each goes on, and nothing is done twice.
func TestServerPausedUnderLoad(t *testing.T) {
	t.Parallel()
	pause, ttl := 5*time.Second, 2*time.Second
	if soak() {
		pause, ttl = 90*time.Second, 10*time.Second
	}
	s, pool := migrated(t, nil)
	log := [2]*journal{{}, {}}
	var hosts [2]*host.Worker
	for i := range hosts {
		hosts[i] = platformtest.HostWith(t, &host.Worker{Database: s.DSN, Log: log[i].logger(), LeaseTTL: ttl}, noting("a.one", nil), noting("a.two", nil), noting("a.three", nil))
	}
	ids := instances(t, pool)
	stop := emitters(t, s.DSN, 4)
	platformtest.WaitFor(t, pool, `select count(*) > 200 from effect`)
	began := time.Now()
	s.Pause()
	for _, w := range hosts {
		becomes(t, w, platform.ReasonDatabaseUnreachable, pause)
	}
	<-time.After(time.Until(began.Add(pause)))
	s.Resume()
	back := time.Now()
	for _, w := range hosts {
		becomes(t, w, "", 10*time.Second)
	}
	t.Logf("ready %v after the pause", time.Since(back))
	for i := range log {
		log[i].atMostOneASecond(t, began)
		if rescued := log[i].with("dead host"); len(rescued) > 0 {
			t.Errorf("host %d took the other for dead: %v", i, rescued)
		}
	}
	n := ask[int64](t, pool, `select count(*) from effect`)
	platformtest.WaitWithin(t, pool, 10*time.Second, `select count(*) > $1 + 50 from effect`, n)
	settled(t, pool, stop(), "a.one", "a.two", "a.three")
	if now := instances(t, pool); now != ids {
		t.Errorf("instances were %s and are %s", ids, now)
	}
}

// F83: the server dies under load, without a checkpoint or a word, and comes back:
// the hosts go on as they are, ready within ten seconds, effects exactly once.
func TestServerKilledUnderLoad(t *testing.T) {
	t.Parallel()
	times := 2
	if soak() {
		times = 20
	}
	s, pool := migrated(t, nil)
	log := [2]*journal{{}, {}}
	var hosts [2]*host.Worker
	for i := range hosts {
		hosts[i] = platformtest.HostWith(t, &host.Worker{Database: s.DSN, Log: log[i].logger(), LeaseTTL: 3 * time.Second}, noting("a.one", nil), noting("a.two", nil))
	}
	ids := instances(t, pool)
	stop := emitters(t, s.DSN, 4)
	for range times {
		n := ask[int64](t, pool, `select count(*) from effect`)
		platformtest.WaitFor(t, pool, `select count(*) > $1 + 100 from effect`, n)
		began := time.Now()
		if err := died(t, s, pool).Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		back := time.Now()
		for _, w := range hosts {
			becomes(t, w, "", 10*time.Second)
		}
		platformtest.WaitWithin(t, pool, 15*time.Second, `select count(*) > $1 + 150 from effect`, n)
		t.Logf("away for %v, working again %v later", back.Sub(began), time.Since(back))
		for i := range log {
			log[i].atMostOneASecond(t, began)
		}
	}
	settled(t, pool, stop(), "a.one", "a.two")
	if now := instances(t, pool); now != ids {
		t.Errorf("instances were %s and are %s", ids, now)
	}
}

// Positions are committed without waiting for the disk, so a crash can take back the
// last ones. A host that has seen them must not go by them: the same positions are
// given again, to whatever was committed.
func TestPositionsTakenBackByACrash(t *testing.T) {
	t.Parallel()
	rounds := 4
	if soak() {
		rounds = 50
	}
	// Nothing but commits that wait flushes here, and there are none but the emitters'.
	s, pool := migrated(t, map[string]string{"wal_writer_delay": "10s"})
	started, goOn := make(chan struct{}, 1000), make(chan struct{}, 1000)
	platformtest.HostWith(t, &host.Worker{Database: s.DSN, LeaseTTL: 30 * time.Second}, noting("a.crash", func(ctx context.Context) {
		started <- struct{}{}
		select {
		case <-goOn:
		case <-ctx.Done():
		}
	}))
	for i := range rounds {
		author := `select mill.emit('test.load', 'kept')`
		if i%2 == 1 { // who does not wait for the disk, either: this event is gone after the crash
			author = `begin; set local synchronous_commit = off; select mill.emit('test.load', 'lost'); commit`
		}
		sql(t, pool, author)
		hear(t, started) // positioned, and in its handler
		head := ask[int64](t, pool, `select pgmill.head()`)
		goOn <- struct{}{}
		tx := died(t, s, pool)
		// Nobody can give positions until the holder has opened its shard again.
		if _, err := tx.Exec(t.Context(), `select pg_advisory_xact_lock(1886219628, 1)`); err != nil {
			t.Fatal(err)
		}
		back := ask[int64](t, pool, `select pgmill.head()`)
		t.Logf("round %d: the head was %d, is %d", i, head, back)
		<-time.After(1500 * time.Millisecond)
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		close(goOn)
		sql(t, pool, `select mill.emit('test.load', 'after') from generate_series(1, 3)`)
		settled(t, pool, 0, "a.crash")
		goOn = make(chan struct{}, 1000)
		drain(started)
	}
}

func hear(t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(20 * time.Second):
		t.Fatal("the handler does not run")
	}
}

func drain(c <-chan struct{}) {
	for len(c) > 0 {
		<-c
	}
}

// died kills the server and answers a transaction begun as soon as it is back.
func died(t *testing.T, s *fault.Server, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	before := ask[time.Time](t, pool, `select pg_postmaster_start_time()`)
	s.Kill()
	pool.Reset() // or the next statements would meet connections of the time before
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); <-look.C {
		tx, err := pool.Begin(t.Context())
		if err != nil {
			continue
		}
		var is time.Time
		if err := tx.QueryRow(t.Context(), `select pg_postmaster_start_time()`).Scan(&is); err == nil && is.After(before) {
			return tx
		}
		_ = tx.Rollback(t.Context())
	}
	t.Fatal("the server does not come back")
	return nil
}

// F38, F42: the connections of a host die without a word, no RST, at the commit of a
// shard's head among others, and new ones are good. The host goes on in about a
// timeout and a lease; what it had in hand is done once.
func TestConnectionsThatFreeze(t *testing.T) {
	t.Parallel()
	dsn := platformtest.DSN(t)
	pool := platformtest.Pool(t, dsn)
	sql(t, pool, effectTable)
	wire := fault.NewWire(t, dsn)
	const timeout, ttl = 2 * time.Second, 3 * time.Second
	var subs []platform.Subscription
	var names []string
	for i := range 4 {
		s := noting(fmt.Sprint("a.s", i), nil)
		s.Timeout = timeout
		subs, names = append(subs, s), append(names, s.Name)
	}
	log := &journal{}
	w := platformtest.HostWith(t, &host.Worker{Database: wire.DSN, Log: log.logger(), LeaseTTL: ttl}, subs...)
	id := w.ID()
	stop := emitters(t, dsn, 2)
	platformtest.WaitFor(t, pool, `select count(*) > 200 from effect`)
	wire.Forget()
	frozen := time.Now()
	n := ask[int64](t, pool, `select max(event_id) from effect`)
	for _, name := range names {
		platformtest.WaitWithin(t, pool, time.Minute, `select coalesce(max(event_id), 0) > $1 + 100 from effect where sub = $2`, n, name)
	}
	t.Logf("all shards go on %v after the freeze", time.Since(frozen))
	if took := time.Since(frozen); took > 2*ttl+10*time.Second {
		t.Errorf("the shards went on after %v", took)
	}
	becomes(t, w, "", 10*time.Second)
	settled(t, pool, stop(), names...)
	if w.ID() != id {
		t.Error("it is another instance")
	}
}

// F44, its cursor part: while somebody holds an old snapshot nothing that churns can
// be vacuumed, and the batches take as long as before all the same. The holder is
// named in the health view.
func TestOldSnapshotDoesNotSlowTheCursor(t *testing.T) {
	t.Parallel()
	quarter := 3 * time.Second
	if soak() {
		quarter = 5 * time.Minute
	}
	dsn := platformtest.DSN(t)
	pool := platformtest.Pool(t, dsn)
	sql(t, pool, effectTable)
	sql(t, pool, `alter table public.effect add at timestamptz default clock_timestamp()`)
	s := noting("a.old", nil)
	s.Handle = func(ctx context.Context, tx pgx.Tx, e platform.Event) error {
		_, err := tx.Exec(ctx, `insert into effect values ('a.old', $1)`, e.ID)
		return err
	}
	platformtest.Host(t, dsn, s)
	old, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer old.Rollback(context.Background())
	if _, err := old.Exec(t.Context(), `select pg_current_xact_id()`); err != nil { // a writer, too
		t.Fatal(err)
	}
	stop := emitters(t, dsn, 4)
	platformtest.WaitFor(t, pool, `select count(*) > 20 from effect`)
	var from int64
	var p90 []float64
	for range 4 {
		<-time.After(quarter)
		p90 = append(p90, ask[float64](t, pool, `select percentile_cont(0.9) within group (order by extract(epoch from f.at - e.emitted_at)::float8)
			from effect f join pgmill.event e on e.id = f.event_id where e.id > $1`, from))
		from = ask[int64](t, pool, `select max(event_id) from effect`)
	}
	t.Logf("p90 from emit to handler in each quarter: %.3f s", p90)
	if first, last := p90[0], p90[3]; last > 3*first+0.1 {
		t.Errorf("p90 went from %.3f s to %.3f s", first, last)
	}
	if got := ask[string](t, pool, pgtest.HeldBack); got != "old_snapshot" {
		t.Errorf("vacuum is not said to be held back: %q", got)
	}
	settled(t, pool, stop(), "a.old")
}

// F80, F83: all connections of the server are taken when the host starts, and again
// while it works; it waits, says why, and goes on when there are some. It runs as a
// role that owns nothing, to whom no reserved connection is left.
func TestMaxConnectionsReached(t *testing.T) {
	t.Parallel()
	s, pool := migrated(t, map[string]string{"max_connections": "30", "superuser_reserved_connections": "12"})
	sql(t, pool, `create role plain login password 'plain'`)
	sql(t, pool, `grant pgmill_runtime, mill_reader to plain`)
	sql(t, pool, `grant all on effect to plain`)
	dsn := withUser(t, s.DSN, "plain", "plain")
	taken := func() (giveBack func()) {
		var conns []*pgx.Conn
		for {
			conn, err := pgx.Connect(t.Context(), dsn)
			if err != nil {
				break
			}
			conns = append(conns, conn)
		}
		return func() {
			for _, c := range conns {
				_ = c.Close(context.Background())
			}
		}
	}
	giveBack := taken()
	log, began := &journal{}, time.Now()
	w := run(t, &host.Worker{Database: dsn, Log: log.logger(), Poll: 200 * time.Millisecond, LeaseTTL: 3 * time.Second, MaxConns: 2}, noting("a.full", nil))
	becomes(t, w, platform.ReasonDatabaseUnreachable, 10*time.Second)
	<-time.After(2 * time.Second)
	log.atMostOneASecond(t, began)
	giveBack()
	becomes(t, w, "", 10*time.Second)

	giveBack = taken()
	began = time.Now()
	for range 30 {
		platformtest.Emit(t, pool, platform.NewEvent{Type: "test.load", Target: "t"})
	}
	<-time.After(3 * time.Second)
	log.atMostOneASecond(t, began)
	giveBack()
	if failed := log.with("event failed"); len(failed) > 0 {
		t.Errorf("a missing connection is nobody's failure: %v", failed)
	}
	settled(t, pool, 30, "a.full")
	becomes(t, w, "", 10*time.Second)
	if len(log.with("lease not renewed")) > 0 {
		t.Errorf("the lease's connection was not reserved: %v", log.with("lease"))
	}
}
