package subscription

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/internal/claim"
)

// Shadow runs a subscription's handler on events of the past and takes back whatever
// it wrote (N45): each event in a transaction of its own that is rolled back. No cursor
// moves, nothing is emitted, no attempt counts. What the handler does outside Postgres
// is done.
type Shadow struct {
	Subscription platform.Subscription // a registered one
	Role         string                // that its handler runs as; "" means the connection's
	Connect      func(ctx context.Context) (*pgx.Conn, error)
	Done         func(e platform.Event, reason platform.Reason, cause error) // reason "": it went well
}

// Positions answers the positions (after, upto] that from and to stand for: zero, now, a
// position or a time.
func (s *Shadow) Positions(ctx context.Context, from, to string) (after, upto int64, err error) {
	conn, err := s.Connect(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing is lost
	err = conn.QueryRow(ctx, "select pgmill.position_of($1), least(pgmill.head(), pgmill.position_of($2) + case when $2 ~ '^[0-9]+$' then 1 else 0 end)", from, to).Scan(&after, &upto)
	return after, upto, err
}

// Run handles the events in (after, upto], in order, until ctx ends.
func (s *Shadow) Run(ctx context.Context, after, upto int64) error {
	conn, err := s.Connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	const take = 500
	for after < upto {
		to := min(upto, after+window)
		rows, err := conn.Query(ctx, sqlRead, after, to, take, likes(s.Subscription.Events), 1, 0, true)
		if err != nil {
			return fmt.Errorf("read events: %w", err)
		}
		events, err := collect(rows, take)
		if err != nil {
			return fmt.Errorf("read events: %w", err)
		}
		for _, e := range events {
			if conn.IsClosed() { // a handler's timeout ends its session
				if conn, err = s.Connect(ctx); err != nil {
					return err
				}
			}
			f, err := s.one(ctx, conn, e)
			if err != nil {
				return err
			}
			s.Done(e, f.reason, f.cause)
		}
		if after = to; len(events) == take {
			after = events[take-1].Pos
		}
	}
	return nil
}

// one handles one event and rolls back; failed without a reason means that it went well.
func (s *Shadow) one(ctx context.Context, conn *pgx.Conn, e platform.Event) (failed, error) {
	h := &holder{sub: s.Subscription, role: s.Role}
	b := &pgx.Batch{}
	b.Queue(sqlBegin)
	claim.AsModule(b, h.role)
	if err := conn.SendBatch(ctx, b).Close(); err != nil {
		return failed{}, fmt.Errorf("begin as the handler: %w", err)
	}
	hctx, cancel := context.WithTimeout(ctx, s.Subscription.Timeout)
	defer cancel()
	var at atomic.Int64
	f := failed{}
	if r := h.invoke(hctx, conn, []platform.Event{e}, &at); r.failed != nil {
		f = *r.failed
	} else if _, err := conn.Exec(ctx, "set constraints all immediate"); err != nil {
		f = failed{reason: platform.ReasonCommitFailed, cause: err}
	}
	if ctx.Err() != nil {
		return failed{}, context.Cause(ctx)
	}
	if conn.IsClosed() {
		return f, nil
	}
	if _, err := conn.Exec(ctx, "rollback"); err != nil {
		_ = conn.Close(ctx)
	}
	return f, nil
}
