package wakeup

import (
	"context"
	"log/slog"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/platform/platformtest/fault"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

// listening is a bell that runs until the test ends.
type listening struct {
	*Bell
	t       *testing.T
	pool    *pgxpool.Pool
	changed chan bool
	again   chan struct{}
	sum     int
}

// listen rings by the database that sends sees and hears by the one that hears sees.
func listen(t *testing.T, sends, hears string) *listening {
	t.Helper()
	hears = pgtest.Direct(t, hears)
	config, err := pgxpool.ParseConfig(sends)
	if err != nil {
		t.Fatal(err)
	}
	pgtest.Pooled(config.ConnConfig)
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	l := &listening{t: t, pool: pool, changed: make(chan bool, 100), again: make(chan struct{}, 100)}
	l.Bell = NewBell(func(ctx context.Context) (*pgx.Conn, error) {
		cfg, err := pgx.ParseConfig(hears)
		if err != nil {
			return nil, err
		}
		cfg.RuntimeParams["application_name"] = "bell " + t.Name()
		return pgx.ConnectConfig(ctx, cfg)
	}, pool, "me", slog.New(slog.DiscardHandler))
	l.Changed = func(up bool) { l.changed <- up }
	l.Reconnected = func() { l.again <- struct{}{} }
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	return l
}

func (l *listening) becomes(up bool) {
	l.t.Helper()
	late := time.After(patience)
	for {
		select {
		case got := <-l.changed:
			if got == up {
				return
			}
		case <-late:
			l.t.Fatalf("the bell did not become up=%v", up)
		}
	}
}

// hears waits until n bells in all were heard.
func (l *listening) hears(n int) {
	l.t.Helper()
	select {
	case got := <-l.Heard: // all that there is by now
		l.sum += got
	default:
	}
	late := time.After(patience)
	for l.sum < n {
		select {
		case got := <-l.Heard:
			l.sum += got
		case <-late:
			l.t.Fatalf("heard %d bells, want %d", l.sum, n)
		}
	}
	if l.sum > n {
		l.t.Errorf("heard %d bells, want %d", l.sum, n)
	}
}

func (l *listening) sql(sql string, args ...any) {
	l.t.Helper()
	if _, err := l.pool.Exec(l.t.Context(), sql, args...); err != nil {
		l.t.Fatalf("%s: %v", sql, err)
	}
}

// A bell hears emitters and other hosts, and neither itself nor other channels.
func TestBellHearsOthers(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t, nil, "empty")
	l := listen(t, dsn, dsn)
	l.becomes(true) // by a probe, which is no bell
	l.hears(1)      // to look for what was missed
	l.sql(`select pg_notify('pgmill', '')`)
	l.sql(`select pg_notify('pgmill', 'h:other')`)
	l.sql(`select pg_notify('pgmill', 'p:nonce of another host')`)
	l.sql(`select pg_notify('other', '')`)
	if err := l.Ring(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.sql(`select pg_notify('pgmill', 'p:the last')`)
	late := time.After(patience)
	for nonce := ""; nonce != "the last"; { // then all before it was heard
		select {
		case nonce = <-l.echo:
		case <-late:
			t.Fatal("the last notification was not heard")
		}
	}
	l.hears(3)
}

// N4: nothing that is rung carries facts, nor 200 bytes.
func TestBellCarriesNoFacts(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t, nil, "empty")
	conn, err := pgx.Connect(t.Context(), pgtest.Direct(t, dsn))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), "listen pgmill"); err != nil {
		t.Fatal(err)
	}
	l := listen(t, dsn, dsn)
	l.becomes(true)
	if err := l.Ring(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for seen := ""; seen != "h:me"; {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if seen = n.Payload; len(seen) >= 200 || len(seen) < 2 || seen[1] != ':' {
			t.Errorf("payload %q", seen)
		}
	}
}

// F42: a connection that was ended is replaced at once; the new one listens before
// the look for what was missed, so that nothing falls between.
func TestBellListensAgainBeforeItLooks(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t, nil, "empty")
	l := listen(t, dsn, dsn)
	l.becomes(true)
	l.hears(1)
	for range 3 {
		l.sql(`select pg_terminate_backend(pid) from pg_stat_activity where application_name = left($1, 63)`, "bell "+t.Name())
		l.becomes(false)
		select {
		case <-l.again:
		case <-time.After(patience):
			t.Fatal("no new connection")
		}
		l.sql(`select pg_notify('pgmill', '')`) // the new connection must hear it already
		l.hears(l.sum + 2)                      // the catch-up and this one
		l.becomes(true)
	}
	var n int
	if err := l.pool.QueryRow(t.Context(), `select count(*) from pg_stat_activity where application_name = left($1, 63)`, "bell "+t.Name()).Scan(&n); err != nil || n != 1 {
		t.Errorf("%d connections listen, %v; want 1", n, err)
	}
}

// A LISTEN that succeeds and hears nothing, as behind a transaction-mode pooler
// (here: in another database), is never called up; rings that do come do not hurt.
func TestBellThatIsNeverHeardIsNotUp(t *testing.T) {
	t.Parallel()
	l := listen(t, pgtest.Database(t, nil, "empty"), pgtest.Database(t, nil, "empty"))
	l.hears(1) // it listens, it thinks
	l.sql(`select pg_notify('pgmill', '')`)
	select {
	case up := <-l.changed:
		t.Errorf("the bell became up=%v", up)
	case <-time.After(probeWait + time.Second):
	}
	if l.Up() {
		t.Error("the bell is up")
	}
}

// F42: a connection that dies without a word (no RST) is found out by the probe, and
// replaced.
func TestBellFindsOutThatItIsDeaf(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits for the second probe, 30 s; run it without -short")
	}
	dsn := pgtest.Database(t, nil, "empty")
	direct := pgtest.Direct(t, dsn)
	silent, whole := fault.NewWire(t, direct), fault.NewWire(t, direct)
	u, err := url.Parse(silent.DSN)
	if err != nil {
		t.Fatal(err)
	}
	other, _ := url.Parse(whole.DSN)
	u.Host += "," + other.Host // the second is for when the first does not answer
	q := u.Query()
	q.Set("connect_timeout", "1")
	u.RawQuery = q.Encode()
	l := listen(t, dsn, u.String())
	l.becomes(true)
	silent.Freeze()
	select {
	case up := <-l.changed:
		if up {
			t.Error("up, again?")
		}
	case <-time.After(probeEvery + 2*probeWait):
		t.Fatal("still called up")
	}
	l.becomes(true) // by the other way
	heard := l.sum
	l.sql(`select pg_notify('pgmill', '')`)
	for deadline := time.After(patience); l.sum < heard+3; { // the first, the catch-up, this one
		select {
		case n := <-l.Heard:
			l.sum += n
		case <-deadline:
			t.Fatalf("heard %d bells more", l.sum-heard)
		}
	}
}
