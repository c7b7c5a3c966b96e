package subscription_test

import (
	"context"
	"fmt"
	"maps"
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
)

// world is one database with a table of effects, and what handlers were called with.
type world struct {
	*testing.T
	dsn string
	db  *pgxpool.Pool

	mu    sync.Mutex
	calls []string // as the handlers note them
	heard chan struct{}
}

func newWorld(t *testing.T, modules ...platform.Module) *world {
	t.Helper()
	w := &world{T: t, dsn: platformtest.DSN(t, modules...), heard: make(chan struct{}, 1)}
	w.db = platformtest.Pool(t, w.dsn)
	w.exec(`create table effect (n bigint generated always as identity, event bigint, pos bigint, type text, target text, key text, scope text, xid xid8 default pg_current_xact_id())`)
	// No retry comes before the test wants it: an hour is added to each wait.
	w.exec(`create function patience() returns trigger language plpgsql as $$ begin
			if new.next_retry_at > now() then new.next_retry_at := new.next_retry_at + interval '1 hour'; end if;
			return new;
		end $$;
		create trigger patience before update of next_retry_at on pgmill.shard for each row execute function patience()`)
	return w
}

func (w *world) exec(sql string, args ...any) {
	w.Helper()
	if _, err := w.db.Exec(w.Context(), sql, args...); err != nil {
		w.Fatalf("%s: %v", sql, err)
	}
}

func (w *world) wait(query string, args ...any) {
	w.Helper()
	platformtest.WaitFor(w.T, w.db, query, args...)
}

// ask reads one value.
func ask[V any](w *world, query string, args ...any) V {
	w.Helper()
	var v V
	if err := w.db.QueryRow(w.Context(), query, args...).Scan(&v); err != nil {
		w.Fatalf("%s %v: %v", query, args, err)
	}
	return v
}

// list reads one column as one text.
func (w *world) list(query string, args ...any) string {
	w.Helper()
	rows, err := w.db.Query(w.Context(), query, args...)
	if err != nil {
		w.Fatalf("%s %v: %v", query, args, err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		w.Fatalf("%s %v: %v", query, args, err)
	}
	return strings.Join(all, " ")
}

// host runs subscriptions in this process with a poll of 50 ms.
func (w *world) host(subs ...platform.Subscription) *host.Worker {
	w.Helper()
	return platformtest.HostWith(w.T, &host.Worker{Database: w.dsn, Poll: 50 * time.Millisecond}, subs...)
}

// sub is a subscription of everything under t, from zero, that records effects
// unless refuse answers an error for an event.
func (w *world) sub(name string, refuse func(ctx context.Context, tx pgx.Tx, e platform.Event) error) platform.Subscription {
	return platform.Subscription{
		Name: name, Events: []string{"t.*"}, Owners: platform.OwnedBy("test"), From: platform.FromZero, MaxAttempts: 4,
		Handle: func(ctx context.Context, tx pgx.Tx, e platform.Event) error {
			w.note("%s", e.Target)
			if err := effect(ctx, tx, e); err != nil {
				return err
			}
			if refuse != nil {
				return refuse(ctx, tx, e)
			}
			return nil
		},
	}
}

// batchSub is sub with HandleBatch; it notes the size of each batch.
func (w *world) batchSub(name string, refuse func(ctx context.Context, tx pgx.Tx, es []platform.Event) error) platform.Subscription {
	s := w.sub(name, nil)
	s.Handle = nil
	s.HandleBatch = func(ctx context.Context, tx pgx.Tx, es []platform.Event) error {
		w.note("%d", len(es))
		for _, e := range es {
			if err := effect(ctx, tx, e); err != nil {
				return err
			}
		}
		return refuse(ctx, tx, es)
	}
	return s
}

func effect(ctx context.Context, tx pgx.Tx, e platform.Event) error {
	_, err := tx.Exec(ctx, "insert into effect (event, pos, type, target, key, scope) values ($1, $2, $3, $4, $5, $6)", e.ID, e.Pos, e.Type, e.Target, e.Key, e.Scope)
	return err
}

// note records a call of a handler.
func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, fmt.Sprintf(format, args...))
	select {
	case w.heard <- struct{}{}:
	default:
	}
}

// noted is what was recorded so far.
func (w *world) noted() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.calls, " ")
}

// callsOf counts the calls that were noted with one target.
func (w *world) callsOf(target string) int {
	n := 0
	for _, c := range strings.Fields(w.noted()) {
		if c == target {
			n++
		}
	}
	return n
}

// emit emits t.x events for targets, all in one transaction.
func (w *world) emit(targets ...string) []int64 {
	w.Helper()
	events := make([]platform.NewEvent, len(targets))
	for i, target := range targets {
		events[i] = platform.NewEvent{Type: "t.x", Target: target}
	}
	return platformtest.Emit(w.T, w.db, events...)
}

// numbered are n targets e1 … en.
func numbered(n int) []string {
	targets := make([]string, n)
	for i := range targets {
		targets[i] = fmt.Sprintf("e%d", i+1)
	}
	return targets
}

// due makes what waits for its next attempt due now.
func (w *world) due(name string) {
	w.Helper()
	w.exec("update pgmill.shard set next_retry_at = now() where subscription = $1 and next_retry_at is not null", name)
}

// caughtUp waits until a subscription's cursors are at the head of now.
func (w *world) caughtUp(name string) {
	w.Helper()
	w.wait("select bool_and(position >= (select count(*) from pgmill.event)) from mill.subscriptions where name = $1", name)
}

// failed waits until the failing event of a subscription has had so many attempts.
func (w *world) failed(name string, attempts int) {
	w.Helper()
	w.wait("select bool_or(attempts = $2 and state in ('retrying', 'held')) from mill.subscriptions where name = $1", name, attempts)
}

// once checks that each target has exactly one effect, and no other target any.
func (w *world) once(targets ...string) {
	w.Helper()
	slices.Sort(targets)
	want := strings.Join(targets, " ")
	if got := w.list(`select target from effect order by target collate "C", n`); got != want {
		w.Errorf("effects are of\n  %s\nwant once each\n  %s", got, want)
	}
}

// faulty refuses events of some targets a number of times.
type faulty struct {
	mu   sync.Mutex
	left map[string]int
	err  func(e platform.Event) error
}

// refusing answers handler errors for targets, each so many times; -1: always.
func refusing(left map[string]int) *faulty {
	return &faulty{left: maps.Clone(left), err: func(e platform.Event) error { return fmt.Errorf("no %s today", e.Target) }}
}

func (f *faulty) refuse(_ context.Context, _ pgx.Tx, e platform.Event) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left[e.Target] == 0 {
		return nil
	}
	f.left[e.Target]--
	return f.err(e)
}

// set changes how often a target will be refused.
func (f *faulty) set(target string, times int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left[target] = times
}
