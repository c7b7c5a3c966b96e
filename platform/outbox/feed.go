package outbox

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/platform/internal/db"
)

// Feed is one process's view of the log's head: whoever looks publishes to it, and
// watchers hear when types they care about arrived. The zero value with Pool set is
// ready.
type Feed struct {
	Pool *pgxpool.Pool

	mu       sync.Mutex
	head     int64
	watchers map[*Watch]struct{}
}

// News is what a look or a tick found.
type News struct {
	Advanced int64    // events given a position by this call; -1: another host was at it
	Head     int64    // the last position there is
	Fresh    bool     // the head moved since this process last looked
	Types    []string // of the fresh events; nil if there were too many to say
}

// sqlLook also goes in front of other statements, so it stands here and not among
// the generated ones.
const sqlLook = "select advanced, head, types from pgmill.look($1, $2)"

// Look advances and publishes what is new. hush > 0 keeps emitters from ringing for
// so long: whoever asks for it must look again after it.
func (f *Feed) Look(ctx context.Context, hush time.Duration) (News, error) {
	return f.looked(f.Pool.QueryRow(ctx, sqlLook, f.Head(), hush.Milliseconds()))
}

// QueueLook puts a look, in a transaction of its own, in front of what shall see what
// it finds. ReadLook takes its results.
func (f *Feed) QueueLook(b *pgx.Batch) {
	b.Queue("begin")
	b.Queue(sqlLook, f.Head(), 0)
	b.Queue("commit")
}

// ReadLook publishes what a queued look found.
func (f *Feed) ReadLook(res pgx.BatchResults) (News, error) {
	if _, err := res.Exec(); err != nil {
		return News{}, fmt.Errorf("look at the log: %w", err)
	}
	n, err := f.looked(res.QueryRow())
	if err != nil {
		return News{}, err
	}
	if _, err := res.Exec(); err != nil {
		return n, fmt.Errorf("look at the log: %w", err)
	}
	return n, nil
}

func (f *Feed) looked(row pgx.Row) (News, error) {
	var advanced, head int64
	var types []string
	if err := row.Scan(&advanced, &head, &types); err != nil {
		return News{}, fmt.Errorf("look at the log: %w", err)
	}
	return f.Publish(advanced, head, types), nil
}

// Arm ends a hush: emitters ring again. Look after it.
func (f *Feed) Arm(ctx context.Context) error {
	if err := db.New(f.Pool).BellArm(ctx); err != nil {
		return fmt.Errorf("arm the bell: %w", err)
	}
	return nil
}

// Head is the last position that this process has seen.
func (f *Feed) Head() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.head
}

// Publish takes what another statement found out about the head, and wakes the
// watchers of what is fresh.
func (f *Feed) Publish(advanced, head int64, types []string) News {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := News{Advanced: advanced, Head: head, Fresh: head > f.head, Types: types}
	switch {
	case head < f.head: // a crash took positions back: what comes after head is news again
		n.Fresh, types = true, nil
	case !n.Fresh:
		return n
	}
	f.head = head
	for w := range f.watchers {
		if w.wants(types) {
			w.wake()
		}
	}
	return n
}

// Watch hears of fresh events of the types it matches: C gets a token, never more
// than one. Stop must be called.
type Watch struct {
	C       chan struct{}
	matches func(eventType string) bool
	feed    *Feed
}

// Watch starts to listen.
func (f *Feed) Watch(matches func(eventType string) bool) *Watch {
	w := &Watch{C: make(chan struct{}, 1), matches: matches, feed: f}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watchers == nil {
		f.watchers = map[*Watch]struct{}{}
	}
	f.watchers[w] = struct{}{}
	return w
}

// Stop ends a watch.
func (w *Watch) Stop() {
	w.feed.mu.Lock()
	defer w.feed.mu.Unlock()
	delete(w.feed.watchers, w)
}

func (w *Watch) wants(types []string) bool {
	if types == nil {
		return true
	}
	for _, t := range types {
		if w.matches(t) {
			return true
		}
	}
	return false
}

func (w *Watch) wake() {
	select {
	case w.C <- struct{}{}:
	default:
	}
}
