package host

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// F83: an outage is at most a line a second, whoever meets it; what else happens
// meanwhile is said.
func TestOutageIsALineASecond(t *testing.T) {
	t.Parallel()
	sql := func(code string) error { return fmt.Errorf("settle: %w", &pgconn.PgError{Code: code}) }
	for _, tt := range []struct {
		name string
		say  func(log *slog.Logger)
		want int // lines in ten seconds of ten a second
	}{
		{"a connection that is refused", func(l *slog.Logger) { l.Warn("x", "error", errors.New("connection refused")) }, 10},
		{"a server that starts", func(l *slog.Logger) { l.Warn("x", "error", sql("57P03")) }, 10},
		{"a holder's logger", func(l *slog.Logger) { l.With("shard", 1).WithGroup("g").Warn("x", "error", sql("08006")) }, 10},
		{"a handler's failure", func(l *slog.Logger) { l.Warn("x", "reason", "handler_error", "error", errors.New("dial tcp")) }, 100},
		{"the reason last", func(l *slog.Logger) { l.Warn("x", "error", errors.New("dial tcp"), "reason", "handler_error") }, 100},
		{"a statement that is wrong", func(l *slog.Logger) { l.Warn("x", "error", sql("42P01")) }, 100},
		{"no error", func(l *slog.Logger) { l.Warn("x", "claims", 3) }, 100},
		{"an error of ours", func(l *slog.Logger) { l.Error("x", "error", errors.New("connection refused")) }, 100},
	} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			log := slog.New(newCalm(slog.NewTextHandler(&out, nil)))
			for range 100 {
				tt.say(log)
				time.Sleep(100 * time.Millisecond) // the bubble's clock
			}
			if n := strings.Count(out.String(), "\n"); n != tt.want {
				t.Errorf("%s: %d lines, want %d", tt.name, n, tt.want)
			}
			if tt.want == 10 && strings.Count(out.String(), "unsaid=9") != 9 {
				t.Errorf("%s: what was not said is not counted: %s", tt.name, &out)
			}
		})
	}
}
