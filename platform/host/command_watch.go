package host

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"
)

const (
	watchEvery = 500 * time.Millisecond
	barWidth   = 30
)

func subscriptionWatch(o *options) *cobra.Command {
	return &cobra.Command{Use: "watch NAME", Short: "Show how far a subscription is until it has caught up", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := o.config(cmd, true)
			if err != nil {
				return err
			}
			return o.watch(cmd.Context(), cfg, args[0], caughtUp)
		}}
}

// watched is how far a subscription is, and what its first blocked shard waits for.
type watched struct {
	Shards    int
	Position  int64 // of the shard furthest behind
	Head      int64
	ReshardAt *int64 // where its shards give way to others; nil: they do not
	BlockedBy *string
}

// following is a line of how far a subscription is, since the first look, and whether
// there is nothing more to see.
type following func(first, now watched, since time.Duration) (line string, over bool)

// caughtUp is over when it has come to where the log's head was at first, and its shards
// are not about to change.
func caughtUp(first, now watched, since time.Duration) (string, bool) {
	return now.bar(first.Position, first.Head, since), now.Position >= first.Head && now.ReshardAt == nil
}

// resharded is over when the new shards are there.
func resharded(first, now watched, since time.Duration) (string, bool) {
	if now.ReshardAt == nil {
		return fmt.Sprintf("%d shards", now.Shards), true
	}
	return now.bar(first.Position, *now.ReshardAt, since), false
}

const watchSubscription = `
select count(*)::int, coalesce(min(position), 0), coalesce(max(head), 0), max(reshard_at),
       (array_agg(blocked_by order by position) filter (where blocked_by is not null and (lag_events > 0 or reshard_at is not null)))[1]
  from mill.subscriptions where name = $1`

// watch shows a subscription until follow says that it is over. Whoever ends it ends the
// watching only.
func (o *options) watch(ctx context.Context, cfg Config, name string, follow following) error {
	return o.withConn(ctx, cfg, "mill_reader", func(conn *pgx.Conn) error {
		p := newProgress(o.stderr)
		defer p.end()
		var first watched
		began := time.Now()
		for {
			var now watched
			err := conn.QueryRow(ctx, watchSubscription, name).Scan(&now.Shards, &now.Position, &now.Head, &now.ReshardAt, &now.BlockedBy)
			switch {
			case ctx.Err() != nil:
				return errWatchEnded
			case err != nil:
				return err
			case now.Shards == 0:
				return notFound(fmt.Sprintf("no subscription %q; `host subscription list` shows them", name))
			}
			if first.Shards == 0 {
				first = now
			}
			line, over := follow(first, now, time.Since(began))
			p.say("%s", line)
			if over {
				return nil
			}
			select {
			case <-ctx.Done():
				return errWatchEnded
			case <-time.After(watchEvery):
			}
		}
	})
}

var errWatchEnded = errors.New("not watched to the end; it goes on by itself, and `host subscription watch` shows it again")

// bar is one line: how much of the way from a position to another is done, how fast, and
// how long the rest will take at that rate.
func (w watched) bar(from, to int64, since time.Duration) string {
	at := min(w.Position, to)
	all, done := max(1, to-from), at-from
	share := min(1, max(0, float64(done)/float64(all)))
	if at == to {
		share = 1
	}
	full := int(share * barWidth)
	line := fmt.Sprintf("[%s%s] %3.0f %%  at %d of %d", strings.Repeat("#", full), strings.Repeat(".", barWidth-full), share*100, at, to)
	if rate := float64(done) / max(since.Seconds(), 0.001); done > 0 && share < 1 {
		left := time.Duration(float64(all-done) / rate * float64(time.Second))
		line += fmt.Sprintf("  %.0f/s  %s left", rate, left.Round(time.Second))
	}
	if w.BlockedBy != nil && (share < 1 || w.ReshardAt != nil) {
		line += "  waits: " + *w.BlockedBy
	}
	return line
}
