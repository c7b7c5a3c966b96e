package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// demoPatience is how long the subscription may stand still before the demo gives up.
const demoPatience = 60 * time.Second

// demoLag is how far the subscription is behind. emitted and handled count transfers
// since the counting began.
type demoLag struct {
	state    string // "" while no host has declared the subscription
	position int64
	head     int64
	seconds  float64
	emitted  int64
	handled  int64
}

func (l demoLag) transfers() int64 { return l.emitted - l.handled }

// stopped reports whether only an operator can bring it on.
func (l demoLag) stopped() bool {
	return l.state == "held" || l.state == "paused" || l.state == "expired"
}

// Shards may have been made more than one: the slowest counts, and one that stands.
const demoLagQuery = `
select coalesce(max(state) filter (where state in ('held', 'paused', 'expired')), min(state), ''),
       coalesce(min(position), 0), pgmill.head(), coalesce(max(lag_seconds), 0)::float8,
       coalesce((select live_hosts from mill.functions where name = $1), 0)
  from mill.subscriptions
 where name = $1`

const demoCountQuery = `select count(*) from pgmill.log where pos > $1 and pos <= $2 and type = $3`

// transferCounter counts transfers from where it was started, reading the log but once.
type transferCounter struct {
	demo     *demo
	emitted  int64 // counted up to position atHead
	atHead   int64
	handled  int64
	atCursor int64
}

func (d *demo) count(ctx context.Context) (*transferCounter, error) {
	var head int64
	if err := d.pool.QueryRow(ctx, `select pgmill.head()`).Scan(&head); err != nil {
		return nil, fmt.Errorf("read the head of the log: %w", err)
	}
	return &transferCounter{demo: d, atHead: head, atCursor: head}, nil
}

func (c *transferCounter) look(ctx context.Context) (demoLag, error) {
	l, err := c.demo.look(ctx)
	if err != nil {
		return demoLag{}, err
	}
	if err := c.add(ctx, &c.emitted, &c.atHead, l.head); err != nil {
		return demoLag{}, err
	}
	if err := c.add(ctx, &c.handled, &c.atCursor, l.position); err != nil {
		return demoLag{}, err
	}
	l.emitted, l.handled = c.emitted, c.handled
	return l, nil
}

func (c *transferCounter) add(ctx context.Context, n, from *int64, to int64) error {
	if to <= *from {
		return nil
	}
	var more int64
	if err := c.demo.pool.QueryRow(ctx, demoCountQuery, *from, to, demoEvent).Scan(&more); err != nil {
		return fmt.Errorf("count transfers: %w", err)
	}
	*n, *from = *n+more, to
	return nil
}

// look reads the lag without counting, and calls lonely if nobody is at it.
func (d *demo) look(ctx context.Context) (demoLag, error) {
	var l demoLag
	var hosts int
	err := d.pool.QueryRow(ctx, demoLagQuery, demoFunction).Scan(&l.state, &l.position, &l.head, &l.seconds, &hosts)
	if err != nil {
		return demoLag{}, fmt.Errorf("read the lag: %w", err)
	}
	if hosts == 0 && d.lonely != nil {
		d.lonely()
	}
	return l, nil
}

// untilHandled waits until every transfer that is committed when it is called has
// been handled. It gives up when the subscription has not moved for demoPatience, or
// at once if only an operator can bring it on, and says what mill.why_not_running says.
func (d *demo) untilHandled(ctx context.Context, show func(demoLag)) error {
	still := time.NewTimer(demoPatience)
	defer still.Stop()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	placed, before := false, int64(-1)
	for {
		if !placed { // what is committed gets its position, unless another host is at that
			var n int64
			if err := d.pool.QueryRow(ctx, `select pgmill.advance()`).Scan(&n); err != nil {
				return fmt.Errorf("advance: %w", err)
			}
			placed = n >= 0
		}
		l, err := d.look(ctx)
		if err != nil {
			return err
		}
		show(l)
		if placed && l.state != "" {
			handled, err := d.handled(ctx, l)
			if handled || err != nil {
				return err
			}
		}
		if l.stopped() {
			return d.whyNot(ctx)
		}
		if l.position != before {
			before = l.position
			still.Reset(demoPatience)
		}
		select {
		case <-again.C:
		case <-still.C:
			return d.whyNot(ctx)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// handled reports whether no transfer waits; events of other types may.
func (d *demo) handled(ctx context.Context, l demoLag) (bool, error) {
	if l.position >= l.head {
		return true, nil
	}
	var waiting bool
	err := d.pool.QueryRow(ctx, `select exists (select from pgmill.log where pos > $1 and pos <= $2 and type = $3)`,
		l.position, l.head, demoEvent).Scan(&waiting)
	if err != nil {
		return false, fmt.Errorf("look for waiting transfers: %w", err)
	}
	return !waiting, nil
}

var errDemoStuck = errors.New("transfers are not handled")

func (d *demo) whyNot(ctx context.Context) error {
	var reason, detail string
	err := d.pool.QueryRow(ctx, `select reason, coalesce(detail, '') from mill.why_not_running where id like $1 || '/%' limit 1`, demoFunction).Scan(&reason, &detail)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return fmt.Errorf("%w, and mill.why_not_running has no row for %s", errDemoStuck, demoFunction)
	case err != nil:
		return fmt.Errorf("read mill.why_not_running: %w", err)
	}
	return fmt.Errorf("%w: %s: %s", errDemoStuck, reason, detail)
}
