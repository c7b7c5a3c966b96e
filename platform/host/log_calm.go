package host

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/pgmill/pgmill/platform/internal/claim"
)

// calm lets at most one line a second through of those that say that the database
// does not answer, and counts the others: an outage is one piece of news, however
// many parts of a host meet it (F83).
type calm struct {
	slog.Handler
	*silence
}

type silence struct {
	mu      sync.Mutex
	last    time.Time
	unsaid  int
	between time.Duration
}

func newCalm(h slog.Handler) slog.Handler {
	return calm{h, &silence{between: time.Second}}
}

func (c calm) WithAttrs(a []slog.Attr) slog.Handler { return calm{c.Handler.WithAttrs(a), c.silence} }
func (c calm) WithGroup(g string) slog.Handler      { return calm{c.Handler.WithGroup(g), c.silence} }

func (c calm) Handle(ctx context.Context, r slog.Record) error {
	if r.Level == slog.LevelWarn && outage(r) {
		unsaid, say := c.next(r.Time)
		if !say {
			return nil
		}
		if unsaid > 0 {
			r = r.Clone()
			r.AddAttrs(slog.Int("unsaid", unsaid))
		}
	}
	return c.Handler.Handle(ctx, r)
}

// next says whether a line may be said now, and how many were not since the last.
func (s *silence) next(now time.Time) (unsaid int, say bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.last) < s.between {
		s.unsaid++
		return 0, false
	}
	unsaid, s.last, s.unsaid = s.unsaid, now, 0
	return unsaid, true
}

// outage reports whether a record's error is the connection's or the server's. One
// that has a reason is a handler's, whatever it is.
func outage(r slog.Record) bool {
	trouble := false
	r.Attrs(func(a slog.Attr) bool {
		switch err, ok := a.Value.Any().(error); {
		case a.Key == "reason":
			trouble = false
			return false
		case ok:
			trouble = !claim.IsSQL(err) || claim.IsServer(err)
		}
		return true
	})
	return trouble
}
