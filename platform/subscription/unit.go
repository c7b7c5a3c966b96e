package subscription

import (
	"context"
	"errors"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/internal/claim"
	"github.com/pgmill/pgmill/platform/internal/failpoint"
)

// The statements of a handler's transaction are sent in two round trips, so they
// stand here and not among the generated ones.
const (
	sqlBegin      = "begin"
	sqlBeginShard = "select pgmill.shard_version($1, $2), pg_backend_pid(), set_config('idle_in_transaction_session_timeout', $3, true)," +
		" set_config('application_name', $4, true)" // behind a pooler the session has no name
	sqlRead    = "select pos, id, type, target, coalesce(key, ''), scope, coalesce(trace_id, ''), emitted_at, data from pgmill.read_shard($1, $2, $3, $4, $5, $6, $7)"
	sqlReadNew = "select pos, id, type, target, coalesce(key, ''), scope, coalesce(trace_id, ''), emitted_at, data from pgmill.read_shard($1, $2, $3, $4, $5, $6, $7, true)"
	sqlReadKey = "select pos, id, type, target, coalesce(key, ''), scope, coalesce(trace_id, ''), emitted_at, data from pgmill.read_key($1, $2, $3, $4, $5)"
	sqlClear   = "select pgmill.clear_shard($1, $2, $3)"
	sqlSettle  = "select pgmill.settle_shard($1, $2, $3, $4, $5)"
	sqlUnnote  = "update pgmill.shard set noted_pos = null where subscription = $1 and shard = $2"
	sqlFence   = "select pgmill.fence($1)"
)

// unit is one transaction of a handler on a connection of its own.
type unit struct {
	*claim.Session
	pid int32 // of the server's session: the connection's own is a pooler's, if there is one
}

// begin opens a transaction and reads events with it, in one round trip. read may
// be nil. It fails with errMoved if the shard was changed since it was opened.
func (h *holder) begin(ctx context.Context, read func(b *pgx.Batch)) (*unit, []platform.Event, error) {
	session, err := claim.Acquire(ctx, h.Pool)
	if err != nil {
		return nil, nil, err
	}
	u := &unit{Session: session}
	ctx, cancel := context.WithTimeout(ctx, h.sub.Timeout) // a connection can die without a word
	defer cancel()
	b := &pgx.Batch{}
	h.queueBegin(b)
	if read != nil {
		read(b)
	}
	claim.AsModule(b, h.role)
	res := u.Send(ctx, b)
	events, err := h.received(res, u, read != nil)
	if err = errors.Join(err, res.Close()); err != nil {
		u.Rollback()
		return nil, nil, err
	}
	return u, events, nil
}

func (h *holder) queueBegin(b *pgx.Batch) {
	b.Queue(sqlBegin)
	b.Queue(sqlBeginShard, h.sub.Name, h.no, strconv.FormatInt((h.sub.Timeout+h.LeaseTTL).Milliseconds(), 10), claim.SessionName(h.Instance))
}

// last is an empty batch for what is sent after the handler.
func (h *holder) last() *pgx.Batch { return claim.AsHost(h.role) }

func (h *holder) received(res pgx.BatchResults, u *unit, read bool) ([]platform.Event, error) {
	if _, err := res.Exec(); err != nil {
		return nil, err
	}
	var version *int32
	if err := res.QueryRow().Scan(&version, &u.pid, nil, nil); err != nil {
		return nil, err
	}
	if version == nil || *version != h.st.Version {
		return nil, errMoved
	}
	if !read {
		return nil, nil
	}
	rows, err := res.Query()
	if err != nil {
		return nil, err
	}
	return collect(rows, h.take)
}

func collect(rows pgx.Rows, sizeHint int) ([]platform.Event, error) {
	defer rows.Close()
	events := make([]platform.Event, 0, min(sizeHint, 512))
	for rows.Next() {
		var e platform.Event
		if err := rows.Scan(&e.Pos, &e.ID, &e.Type, &e.Target, &e.Key, &e.Scope, &e.TraceID, &e.EmittedAt, &e.Data); err != nil {
			return nil, err
		}
		events = append(events, e)
	}
	return events, rows.Err()
}

// commit sends the last statements and the commit.
func (u *unit) commit(ctx context.Context, last *pgx.Batch) error {
	failpoint.At("before-settle")
	if _, err := u.Commit(ctx, last); err != nil {
		return err
	}
	failpoint.At("after-settle")
	return nil
}

// settle commits what the handler wrote together with the cursor at to. passed > 0
// also clears the shard's failure and takes so many off its suspicion.
func (h *holder) settle(ctx context.Context, u *unit, to int64, passed int32) error {
	b := h.last()
	if passed > 0 {
		b.Queue(sqlClear, h.sub.Name, h.no, passed)
	}
	b.Queue(sqlSettle, h.claim.ID, h.sub.Name, h.no, h.st.N+1, to)
	ctx, cancel := context.WithTimeout(ctx, h.sub.Timeout)
	defer cancel()
	if err := u.commit(ctx, b); err != nil {
		if claim.IsMoved(err) {
			return errMoved
		}
		return err
	}
	h.st.N, h.st.Pos, h.scanned = h.st.N+1, to, max(h.scanned, to)
	if passed > 0 {
		h.st.FailingPos, h.st.Attempts, h.st.Held = 0, 0, false
		h.st.SuspectLeft = max(0, h.st.SuspectLeft-passed)
	}
	return nil
}
