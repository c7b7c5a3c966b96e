package subscription_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/host"
	"github.com/pgmill/pgmill/platform/platformtest"
)

// lines is a log that can be read while it is written.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

// F49, F09, N30: what another host, or an operator, does to a shard while its holder
// is in a handler: the holder's commit is refused, nothing of it remains.
func TestF49StaleSettleIsRefused(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		sql  string
		said int    // "stale writer rejected"
		then string // "" or what lets it go on
		want string // effects at the end
	}{
		{name: "the claim was taken back", said: 1, want: "e1 e2", then: "select mill.resume_subscription('test.one')",
			sql: "select mill.pause_subscription('test.one'); delete from pgmill.river_job where state = 'running'"},
		{name: "the claim was taken back and given to another", said: 1, want: "e1 e2", then: "delete from pgmill.river_job",
			sql: `insert into pgmill.instance (kind, id, ttl) values ('worker', 'other', '1 hour');
				with gone as (delete from pgmill.river_job where state = 'running' returning 1)
				insert into pgmill.river_job (state, attempted_at, attempted_by, args, kind, queue, max_attempts, unique_key, unique_states)
				select 'running', now(), array['other'], '{"shard": 0, "subscription": "test.one"}', 'subscription:test.one', 'subscription', 1, pgmill.claim_key('test.one', 0), b'01000001'
				  from gone`},
		{name: "the cursor was moved on", want: "", sql: "select mill.move_subscription('test.one', 'now')"},
		{name: "the cursor was moved to where it is", want: "e1 e2", sql: "select mill.move_subscription('test.one', 'zero')"},
		{name: "the failing event was dropped", want: "e2", then: "select 1",
			sql: "update pgmill.shard set failing_pos = 1, reason = 'handler_error'; select mill.drop_event('test.one')"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			entered, leave := make(chan struct{}, 10), make(chan struct{})
			s := w.sub("test.one", func(context.Context, pgx.Tx, platform.Event) error {
				entered <- struct{}{}
				<-leave
				return nil
			})
			s.Replayable = true
			w.emit("e1", "e2")
			log := &lines{}
			platformtest.HostWith(t, &host.Worker{Database: w.dsn, Poll: 50 * time.Millisecond, Log: host.NewLogger(log, "json", nil)}, s)
			<-entered
			for sql := range strings.SplitSeq(tt.sql, ";\n") {
				w.exec(sql)
			}
			close(leave)
			if tt.said > 0 {
				w.wait("select count(*) = 0 from pg_stat_activity where datname = current_database() and state like 'idle in transaction%'")
				if got := w.list("select target from effect"); got != "" {
					t.Errorf("effects after the refusal: %s; want none", got)
				}
			}
			if tt.then != "" {
				w.exec(tt.then)
			}
			w.caughtUp("test.one")
			if got := w.list("select target from effect order by n"); got != tt.want {
				t.Errorf("effects: %q; want %q", got, tt.want)
			}
			if got := log.count("stale writer rejected"); got != tt.said {
				t.Errorf("%d stale writers rejected; want %d", got, tt.said)
			}
		})
	}
}

// F49, F09: the same while its handler fails: the failure is not written down, for its
// position may be another event's by now, or behind the cursor.
func TestF49StaleFailureIsRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, sql string
		poison    platform.Poison
		calls     int
		want      string // failing position and attempts, parked events
	}{
		{name: "the server crashed", sql: "update pgmill.epoch set n = n + 1", calls: 2, want: "1 1 0"},
		{name: "the server crashed, the key is parked", sql: "update pgmill.epoch set n = n + 1", poison: platform.Park, calls: 2, want: "0 0 1"},
		{name: "the cursor was moved on", sql: "select mill.move_subscription('test.one', 'now')", calls: 1, want: "0 0 0"},
		{name: "the cursor was moved on, the key is not parked", sql: "select mill.move_subscription('test.one', 'now')", poison: platform.Park, calls: 1, want: "0 0 0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			entered, leave := make(chan struct{}, 10), make(chan struct{})
			s := w.sub("test.one", func(_ context.Context, _ pgx.Tx, e platform.Event) error {
				if e.Target != "e1" {
					return nil
				}
				entered <- struct{}{}
				<-leave
				return errors.New("no")
			})
			s.MaxAttempts, s.OnPoison, s.Replayable = 1, tt.poison, true
			w.emit("e1")
			w.host(s)
			<-entered
			w.exec(tt.sql)
			close(leave)
			w.emit("e2")
			w.wait("select exists (select from pgmill.shard where held_at is not null) or exists (select from effect where target = 'e2')")
			if got := w.callsOf("e1"); got != tt.calls {
				t.Errorf("e1 was tried %d times; want %d", got, tt.calls)
			}
			if got := w.list("select concat_ws(' ', coalesce(failing_pos, 0), attempts, (select count(*) from pgmill.parked_event)) from pgmill.shard"); got != tt.want {
				t.Errorf("failing position, attempts, parked: %s; want %s", got, tt.want)
			}
		})
	}
}

// A host that can hold one shard lets all of them have their turn, also when each
// has always something to do.
func TestBusyShardsMakeRoomOnAFullHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var subs []platform.Subscription
	for i := range 3 {
		s := w.sub(fmt.Sprint("test.s", i), nil)
		s.Batch = 1
		s.Handle = func(ctx context.Context, tx pgx.Tx, e platform.Event) error {
			_, err := tx.Exec(ctx, "insert into effect (type, event) select $1, $2 from pg_sleep(0.005)", s.Name, e.ID)
			return err
		}
		subs = append(subs, s)
	}
	w.exec("select count(mill.emit('t.x', 'e' || g)) from generate_series(1, 20000) g") // minutes of work
	platformtest.HostWith(t, &host.Worker{Database: w.dsn, Poll: 50 * time.Millisecond, MaxClaims: 1}, subs...)
	w.wait("select count(distinct type) = 3 from effect")
	w.wait("select bool_and(lag_events > 0) from mill.subscriptions")
}

// DESIGN 4: a drain whose grace ends before the handler hands the claim back.
func TestDrainHandsBackWhatItCutsShort(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	entered := make(chan struct{}, 1)
	s := w.sub("test.one", func(ctx context.Context, _ pgx.Tx, _ platform.Event) error {
		entered <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	})
	w.emit("e1")
	h := platformtest.HostWith(t, &host.Worker{Database: w.dsn, Grace: 100 * time.Millisecond}, s)
	<-entered
	platformtest.Stop(t, h)
	if got := ask[int](w, "select count(*) from pgmill.river_job where state = 'running'"); got != 0 {
		t.Errorf("%d claims were not handed back", got)
	}
	if got := w.list("select concat_ws('|', attempts, reason, suspect_left) from pgmill.shard"); got != "0|0" {
		t.Errorf("the shard is marked: %s", got)
	}
	w.host(w.sub("test.one", nil))
	w.caughtUp("test.one")
	w.once("e1")
}

// F12: a death counts against the event that was noted for it, once. Who got the
// shard next and died before coming to an event has tried none.
func TestADeathBeforeTheEventIsNoAttempt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.host(w.sub("test.one", nil))
	w.emit("e1")
	w.caughtUp("test.one")
	platformtest.Stop(t, h)
	w.exec(`insert into pgmill.instance (kind, id, ttl, since) values ('worker', 'rescuer', '1 hour', now() - interval '2 hours')`)
	w.emit("e2")
	w.exec(`select pgmill.advance()`)
	dies := func() string {
		w.exec(`insert into pgmill.river_job (state, args, kind, queue, max_attempts, attempted_by)
			values ('running', '{"subscription":"test.one","shard":0}', 'subscription:test.one', 'subscription', 1, '{dead}')`)
		w.exec(`select pgmill.rescue('rescuer')`)
		return w.list("select concat_ws('|', attempts, reason, noted_pos) from pgmill.shard")
	}
	w.exec(`update pgmill.shard set noted_pos = (select max(pos) from pgmill.log)`)
	if first, second := dies(), dies(); first != "2|host_lost" || second != first {
		t.Errorf("after the first death %s, after the second %s", first, second)
	}
}
