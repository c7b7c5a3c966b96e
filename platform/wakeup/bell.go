package wakeup

import (
	"context"
	"crypto/rand"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	channel    = "pgmill"
	probeEvery = 30 * time.Second
	probeWait  = 5 * time.Second
	redialMin  = 100 * time.Millisecond
	redialMax  = 5 * time.Second
)

// Payloads of the channel: "" from an emitter, "j" for jobs, "h:<instance>" from a
// host, "p:<nonce>" from a probe. No facts in any (N4).
const (
	jobMark   = "j"
	hostMark  = "h:"
	probeMark = "p:"
)

// Bell is this host's one LISTEN connection to a database. Make it with NewBell.
type Bell struct {
	// Heard gets the number of bells since it was last read; a new connection
	// counts as one, so that what was missed is looked for.
	Heard chan int
	// HeardJobs is the same for bells that are about jobs only.
	HeardJobs chan int
	turned    chan int // LISTEN begins or ceases to be heard
	// Work hears of jobs at once, before anybody reads HeardJobs; may be nil.
	Work func()

	dial     func(ctx context.Context) (*pgx.Conn, error)
	pool     *pgxpool.Pool
	instance string
	log      *slog.Logger
	up       atomic.Bool
	echo     chan string
	// Changed hears when LISTEN begins or ceases to be heard; may be nil.
	Changed func(up bool)
	// Rang hears of each notification that is somebody else's; may be nil.
	Rang func()
	// Reconnected hears of each new connection after the first; may be nil.
	Reconnected func()
}

// NewBell makes a bell that dials its own connection with dial and sends its probes
// and its rings to other hosts through pool.
func NewBell(dial func(ctx context.Context) (*pgx.Conn, error), pool *pgxpool.Pool, instance string, log *slog.Logger) *Bell {
	return &Bell{Heard: make(chan int, 1), HeardJobs: make(chan int, 1), turned: make(chan int, 1), dial: dial, pool: pool, instance: instance, log: log, echo: make(chan string, 4)}
}

// Up reports whether LISTEN was proven to be heard on the present connection.
func (b *Bell) Up() bool { return b.up.Load() }

// Ring tells the other hosts to look.
func (b *Bell) Ring(ctx context.Context) error {
	_, err := b.pool.Exec(ctx, "select pg_notify($1, $2) where pg_notification_queue_usage() < 0.5", channel, b.fromHost())
	return err
}

func (b *Bell) fromHost() string { return hostMark + b.instance }

// Run listens until ctx ends, on a new connection whenever the old one is lost or
// deaf.
func (b *Bell) Run(ctx context.Context) error {
	wait, first := redialMin, true
	for ctx.Err() == nil {
		began := time.Now()
		err := b.listen(ctx, !first)
		first = false
		b.set(false)
		if ctx.Err() != nil {
			return nil
		}
		b.log.Warn("not listening for a moment; polling meanwhile", "error", err)
		if time.Since(began) > probeEvery {
			wait = redialMin
		}
		pause(ctx, wait)
		wait = min(2*wait, redialMax)
	}
	return nil
}

func (b *Bell) listen(ctx context.Context, again bool) error {
	dctx, cancel := context.WithTimeout(ctx, probeWait)
	defer cancel()
	conn, err := b.dial(dctx)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer func() {
		cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(cctx)
	}()
	if _, err := conn.Exec(dctx, "listen "+channel); err != nil {
		return err
	}
	if again && b.Reconnected != nil {
		b.Reconnected()
	}
	rung(b.Heard) // whatever was missed before this connection listened
	go func() { stop(b.probe(ctx)) }()
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return err
		}
		switch nonce, isProbe := strings.CutPrefix(n.Payload, probeMark); {
		case isProbe:
			select {
			case b.echo <- nonce:
			default:
			}
		case n.Payload != b.fromHost():
			if b.Rang != nil {
				b.Rang()
			}
			if n.Payload != jobMark {
				rung(b.Heard)
				continue
			}
			if b.Work != nil {
				b.Work()
			}
			rung(b.HeardJobs)
		}
	}
}

// rung counts one more bell for whoever reads heard; it never blocks.
func rung(heard chan int) {
	n := 1
	select {
	case had := <-heard:
		n += had
	default:
	}
	select {
	case heard <- n:
	default:
	}
}

// probe sends itself a nonce now and then. It returns when one does not come back
// on a connection that was proven before: that connection is dead. One that never
// was proven is behind a pooler, and is only tried again.
func (b *Bell) probe(ctx context.Context) error {
	for {
		nonce := rand.Text()
		sctx, cancel := context.WithTimeout(ctx, probeWait)
		_, err := b.pool.Exec(sctx, "select pg_notify($1, $2)", channel, probeMark+nonce)
		heard := err == nil && b.echoed(sctx, nonce)
		cancel()
		if ctx.Err() != nil {
			return nil
		}
		if was := b.set(heard); was && !heard && err == nil {
			return errDeaf
		}
		pause(ctx, probeEvery)
	}
}

func (b *Bell) echoed(ctx context.Context, nonce string) bool {
	for {
		select {
		case got := <-b.echo:
			if got == nonce {
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
}

func (b *Bell) set(up bool) (was bool) {
	was = b.up.Swap(up)
	if was != up {
		if b.Changed != nil {
			b.Changed(up)
		}
		rung(b.turned)
	}
	return was
}

type deaf struct{}

func (deaf) Error() string { return "LISTEN is not heard any more" }

var errDeaf = deaf{}
