package host_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/host"
	"github.com/pgmill/pgmill/platform/platformtest"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

// soak says that the long form of a test is wanted.
func soak() bool { return os.Getenv("PGMILL_SOAK") == "1" }

const effectTable = `create table public.effect (sub text, event_id bigint)` // no key: a double must show

func sql(t testing.TB, db pgtest.DB, query string, args ...any) {
	t.Helper()
	pgtest.Exec(t, db, query, args...)
}

func ask[T any](t testing.TB, db pgtest.DB, query string, args ...any) T {
	t.Helper()
	return pgtest.Ask[T](t, db, query, args...)
}

// noting notes each event; before, which may be nil, runs first.
func noting(name string, before func(ctx context.Context)) platform.Subscription {
	return platform.Subscription{Name: name, Events: []string{"test.*"}, Owners: platform.OwnedBy("test"), From: platform.FromZero,
		Handle: func(ctx context.Context, tx pgx.Tx, e platform.Event) error {
			if before != nil {
				before(ctx)
			}
			_, err := tx.Exec(ctx, `insert into effect values ($1, $2)`, name, e.ID)
			return err
		}}
}

// notedOnce waits until each event was noted by each subscription, and fails if one
// was twice.
func notedOnce(t *testing.T, pool *pgxpool.Pool, within time.Duration, subs ...string) {
	t.Helper()
	for _, sub := range subs {
		platformtest.WaitWithin(t, pool, within, `select not exists (select from pgmill.event e where e.type like 'test.%'
			and not exists (select from effect f where f.event_id = e.id and f.sub = $1))`, sub)
	}
	if n := ask[int](t, pool, `select count(*) from (select from effect group by sub, event_id having count(*) > 1) x`); n > 0 {
		t.Errorf("%d effects are doubled", n)
	}
	if n := ask[int](t, pool, `select count(*) from effect f where not exists (select from pgmill.event e where e.id = f.event_id)`); n > 0 {
		t.Errorf("%d effects of events that were never committed", n)
	}
}

// journal is a log that a test can count in.
type journal struct {
	mu    sync.Mutex
	lines []string
	at    []time.Time
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for line := range bytes.Lines(b) {
		j.lines = append(j.lines, strings.TrimSpace(string(line)))
		j.at = append(j.at, time.Now())
	}
	return len(b), nil
}

func (j *journal) logger() *slog.Logger { return host.NewLogger(j, "text", slog.LevelInfo) }

// with are the lines that have a text in them.
func (j *journal) with(text string) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var found []string
	for _, l := range j.lines {
		if strings.Contains(l, text) {
			found = append(found, l)
		}
	}
	return found
}

// atMostOneASecond is what F83 asks of the log while the database is in trouble.
func (j *journal) atMostOneASecond(t *testing.T, since time.Time) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	var lines []string
	for i, at := range j.at {
		if at.After(since) {
			lines = append(lines, at.Format("05.000 ")+j.lines[i])
		}
	}
	if took := time.Since(since).Seconds(); float64(len(lines)) > took+3 {
		t.Errorf("%d log lines in %.1f s:\n%s", len(lines), took, strings.Join(lines, "\n"))
	}
}

// becomes waits until a worker is not ready for a reason; "" means ready.
func becomes(t *testing.T, w *host.Worker, want platform.Reason, within time.Duration) {
	t.Helper()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for deadline := time.Now().Add(within); ; <-look.C {
		got := w.NotReady()
		if want == "" && len(got) == 0 || want != "" && slices.Contains(got, want) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not ready: %v; want %q within %v", got, want, within)
		}
	}
}

// run runs a worker that need not become ready; the end of the test stops it.
func run(t *testing.T, w *host.Worker, subs ...platform.Subscription) *host.Worker {
	t.Helper()
	w.Registry = platform.NewRegistry()
	for _, s := range subs {
		if err := w.Registry.Add(s); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("Run = %v", err)
			}
		case <-time.After(30 * time.Second):
			t.Error("the worker does not stop")
		}
	})
	return w
}

// F80: with pools of one and two connections, more shards than connections and
// handlers that open savepoints, everything is done, nothing waits for itself, and
// nothing is left open.
func TestSmallPoolsDoNotDeadlock(t *testing.T) {
	t.Parallel()
	for _, conns := range []int{1, 2} {
		t.Run(fmt.Sprint(conns), func(t *testing.T) {
			t.Parallel()
			dsn := platformtest.DSN(t)
			pool := platformtest.Pool(t, dsn)
			sql(t, pool, effectTable)
			var subs []platform.Subscription
			var names []string
			for i := range 6 {
				name := fmt.Sprintf("a.s%d", i)
				s := noting(name, nil)
				s.Shards = 3
				plain := s.Handle
				s.Handle = func(ctx context.Context, tx pgx.Tx, e platform.Event) error {
					return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return plain(ctx, tx, e) })
				}
				subs, names = append(subs, s), append(names, name)
			}
			log := &journal{}
			w := platformtest.HostWith(t, &host.Worker{Database: dsn, MaxConns: conns, Log: log.logger()}, subs...)
			since := ask[time.Time](t, pool, `select since from pgmill.instance where id = $1`, w.ID())
			for i := range 200 {
				platformtest.Emit(t, pool, platform.NewEvent{Type: "test.pool", Target: fmt.Sprint(i % 17)})
			}
			notedOnce(t, pool, 30*time.Second, names...)
			if !since.Equal(ask[time.Time](t, pool, `select since from pgmill.instance where id = $1`, w.ID())) || len(log.with("lease")) > 0 {
				t.Errorf("the lease was missed: %v", log.with("lease"))
			}
			platformtest.WaitFor(t, pool, `select not exists (select from pg_stat_activity where datname = current_database()
				and application_name like 'pgmill %' and state like 'idle in transaction%')`)
		})
	}
}

// F80: leases never starve behind full pools: not behind handlers that hold every
// connection for twice the ttl, nor behind a table that somebody has locked for as long.
func TestLeaseNeverStarves(t *testing.T) {
	t.Parallel()
	const ttl = 1500 * time.Millisecond
	for _, tt := range []struct {
		name string
		lock string
	}{
		{name: "handlers hold all connections"},
		{name: "the shards are locked", lock: "pgmill.shard"},
		{name: "the cursors are locked", lock: "pgmill.cursor"},
		{name: "the claims are locked", lock: "pgmill.river_job"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dsn := platformtest.DSN(t)
			pool := platformtest.Pool(t, dsn)
			sql(t, pool, effectTable)
			started, goOn := make(chan string, 100), make(chan struct{})
			var subs []platform.Subscription
			var names []string
			for i := range 8 {
				name := fmt.Sprintf("a.s%d", i)
				names = append(names, name)
				subs = append(subs, noting(name, func(context.Context) {
					started <- name
					<-goOn
				}))
			}
			log := &journal{}
			w := platformtest.HostWith(t, &host.Worker{Database: dsn, MaxConns: 2, LeaseTTL: ttl, Log: log.logger()}, subs...)
			since := ask[time.Time](t, pool, `select since from pgmill.instance where id = $1`, w.ID())
			platformtest.Emit(t, pool, platform.NewEvent{Type: "test.starve", Target: "t"})
			<-started
			<-started
			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback(context.Background())
			if tt.lock != "" {
				close(goOn)
				if _, err := tx.Exec(t.Context(), `lock table `+tt.lock+` in access exclusive mode`); err != nil {
					t.Fatal(err)
				}
			}
			for end := time.Now().Add(2*ttl + 500*time.Millisecond); time.Now().Before(end); <-time.After(50 * time.Millisecond) {
				age := ask[float64](t, pool, `select extract(epoch from clock_timestamp() - last_seen)::float8 from pgmill.instance where id = $1`, w.ID())
				if age >= ttl.Seconds() {
					t.Fatalf("the lease is %.3f s old; its ttl is %v", age, ttl)
				}
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if tt.lock == "" {
				close(goOn)
			}
			notedOnce(t, pool, 30*time.Second, names...)
			if !since.Equal(ask[time.Time](t, pool, `select since from pgmill.instance where id = $1`, w.ID())) || len(log.with("lease")) > 0 {
				t.Errorf("the lease was missed: %v", log.with("lease"))
			}
		})
	}
}

// T4, F38: a worker whose instance is deregistered under it stops with the error
// that says so, and hands over what it had; the next start is another instance.
func TestDeregisteredWorkerStops(t *testing.T) {
	t.Parallel()
	dsn := platformtest.DSN(t)
	pool := platformtest.Pool(t, dsn)
	w := &host.Worker{Database: dsn, LeaseTTL: time.Second, Poll: 200 * time.Millisecond, Registry: platform.NewRegistry()}
	ended := make(chan error, 1)
	go func() { ended <- w.Run(context.WithoutCancel(t.Context())) }()
	platformtest.WaitFor(t, pool, `select exists (select from mill.instances where live)`)
	first := w.ID()
	sql(t, pool, `update pgmill.instance set deregistered_at = now()`)
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "deregistered") {
			t.Errorf("Run = %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the worker goes on")
	}
	again := platformtest.Host(t, dsn)
	if again.ID() == first {
		t.Errorf("the next start has the id %s, too", first)
	}
}

// withUser is a DSN of another role.
func withUser(t *testing.T, dsn, user, password string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(user, password)
	return u.String()
}

// N40: which functions do not run for want of owners, and what they lack, is one line
// when the host starts.
func TestFunctionsWithoutOwnersAreNamedAtTheStart(t *testing.T) {
	t.Parallel()
	log := &journal{}
	one, two, well := noting("a.one", nil), noting("a.two", nil), noting("a.well", nil)
	one.Owners.Evidence, one.Owners.Status = "", ""
	two.Owners = platform.Owners{}
	becomes(t, run(t, &host.Worker{Database: platformtest.DSN(t), Log: log.logger()}, one, two, well), "", 20*time.Second)
	got := log.with("owner_matrix_incomplete")
	want := "a.one lacks Status, Evidence; a.two lacks SourceEvent, SourceData, Projection, Status, Result, Evidence, SecurityEvent"
	if len(got) != 1 || !strings.Contains(got[0], " WRN ") || !strings.Contains(got[0], want) || !strings.Contains(got[0], "platform.OwnedBy(module)") || strings.Contains(got[0], "a.well") {
		t.Errorf("the log has %q; want one warning with %q", got, want)
	}
}
