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
			return o.watch(cmd.Context(), cfg, args[0])
		}}
}

// watched is how far a subscription is, and what its first blocked shard waits for.
type watched struct {
	Shards    int
	Position  int64 // of the shard furthest behind
	Head      int64
	Lag       int64
	BlockedBy *string
}

const watchSubscription = `
select count(*)::int, coalesce(min(position), 0), coalesce(max(head), 0), coalesce(max(lag_events), 0),
       (array_agg(blocked_by order by position) filter (where lag_events > 0 and blocked_by is not null))[1]
  from mill.subscriptions where name = $1`

// watch returns when the subscription has come to where the log's head was at first.
// Whoever ends it ends the watching only.
func (o *options) watch(ctx context.Context, cfg Config, name string) error {
	return o.withConn(ctx, cfg, "mill_reader", func(conn *pgx.Conn) error {
		p := newProgress(o.stderr)
		defer p.end()
		var first watched
		began := time.Now()
		for {
			var now watched
			err := conn.QueryRow(ctx, watchSubscription, name).Scan(&now.Shards, &now.Position, &now.Head, &now.Lag, &now.BlockedBy)
			switch {
			case ctx.Err() != nil:
				return errWatchEnded
			case err != nil:
				return err
			case now.Shards == 0:
				return fmt.Errorf("no subscription %q; `host subscription list` shows them", name)
			}
			if first.Shards == 0 {
				first = now
			}
			p.say("%s", now.bar(first, time.Since(began)))
			if now.Position >= first.Head {
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

// bar is one line: how much is done since the first look, how fast, and how long it
// will take at that rate.
func (w watched) bar(first watched, since time.Duration) string {
	all, done := max(1, first.Head-first.Position), min(w.Position, first.Head)-first.Position
	share := min(1, max(0, float64(done)/float64(all)))
	if w.Position >= first.Head {
		share = 1
	}
	full := int(share * barWidth)
	line := fmt.Sprintf("[%s%s] %3.0f %%  at %d of %d", strings.Repeat("#", full), strings.Repeat(".", barWidth-full), share*100, w.Position, first.Head)
	if rate := float64(done) / max(since.Seconds(), 0.001); done > 0 && share < 1 {
		left := time.Duration(float64(all-done) / rate * float64(time.Second))
		line += fmt.Sprintf("  %.0f/s  %s left", rate, left.Round(time.Second))
	}
	if w.BlockedBy != nil && share < 1 {
		line += "  waits: " + *w.BlockedBy
	}
	return line
}
