package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/cmd/bench/internal/lab"
	"github.com/pgmill/pgmill/platform"
)

// source is where a loop by hand reads: one statement that locks the cursor and
// returns the next batch in order, and one that moves the cursor.
type source struct {
	backlog func(ctx context.Context, dsn string, n int) error
	ddl     []string
	read    string
	move    string
	place   func(row pgx.Rows, e *platform.Event) (cursor []any, err error) // scans a row
}

// onLog reads what pgmill's own host reads. Positions appear in order, so a cursor
// is one number.
var onLog = source{
	backlog: backlog,
	ddl: []string{
		`create table hand_cursor (name text primary key, pos bigint not null)`,
		`insert into hand_cursor values ('bench', 0)`,
	},
	read: `
		with c as materialized (select pos from hand_cursor where name = 'bench' for update)
		select l.pos, e.id, e.type, e.target, coalesce(e.key, ''), e.scope, coalesce(e.trace_id, ''), e.emitted_at, e.data
		  from pgmill.log l join pgmill.event e on e.id = l.event_id
		 where l.pos > (select pos from c)
		 order by l.pos limit $1`,
	move: `update hand_cursor set pos = $1 where name = 'bench'`,
	place: func(row pgx.Rows, e *platform.Event) ([]any, error) {
		err := row.Scan(&e.Pos, &e.ID, &e.Type, &e.Target, &e.Key, &e.Scope, &e.TraceID, &e.EmittedAt, &e.Data)
		return []any{e.Pos}, err
	},
}

// onOutbox reads the plain table in the order of transaction ids, below the oldest
// that still runs: whoever leaves a transaction open stops it.
var onOutbox = source{
	backlog: func(ctx context.Context, dsn string, n int) error {
		if err := fill(ctx, dsn, "hand_event", n, 10); err != nil {
			return err
		}
		return once(ctx, dsn, "vacuum analyze hand_event", "checkpoint")
	},
	ddl: []string{
		`drop index hand_event_xid`,
		`create index hand_event_order on hand_event (xid, id)`, // what this reader wants
		`create table hand_cursor (name text primary key, xid xid8 not null, id bigint not null)`,
		`insert into hand_cursor values ('bench', '0', 0)`,
	},
	read: `
		with c as materialized (select xid, id from hand_cursor where name = 'bench' for update)
		select e.xid::text, e.id, e.type, e.target, coalesce(e.key, ''), e.scope, coalesce(e.trace_id, ''), e.emitted_at, e.data
		  from hand_event e
		 where (e.xid, e.id) > ((select xid from c), (select id from c))
		   and e.xid < pg_snapshot_xmin(pg_current_snapshot())
		 order by e.xid, e.id limit $1`,
	move: `update hand_cursor set xid = $1::text::xid8, id = $2 where name = 'bench'`,
	place: func(row pgx.Rows, e *platform.Event) ([]any, error) {
		var xid string
		err := row.Scan(&xid, &e.ID, &e.Type, &e.Target, &e.Key, &e.Scope, &e.TraceID, &e.EmittedAt, &e.Data)
		e.Pos = e.ID
		return []any{xid, e.ID}, err
	},
}

// byHand drains a backlog of n by a loop that one writes oneself: a transaction a
// batch, in which the effects and the cursor commit together.
func (c consumer) byHand(s source) func(context.Context, *lab.Run) error {
	return func(ctx context.Context, r *lab.Run) error {
		dsn, err := migrated(ctx, r)
		if err != nil {
			return err
		}
		pool, err := lab.Pool(ctx, dsn, 2, nil, append(s.ddl, projectionTable)...)
		if err != nil {
			return err
		}
		defer pool.Close()
		f := &flow{}
		for time := range r.Param("times") {
			if err := s.backlog(ctx, dsn, r.N()); err != nil {
				return err
			}
			f.expect(r.N())
			if time == 0 {
				r.Start()
			}
			if err := c.loop(ctx, pool, s, f); err != nil {
				return err
			}
			if err := f.wait(ctx); err != nil {
				return err
			}
		}
		r.Set("rss_mb", rssMB())
		return f.report(r)
	}
}

func (c consumer) loop(ctx context.Context, pool *pgxpool.Pool, s source, f *flow) error {
	for {
		var got int
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) (err error) {
			got, err = c.oneBatch(ctx, tx, s, f)
			return err
		})
		if err != nil {
			return err
		}
		if got > 0 {
			continue
		}
		select {
		case <-f.done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond): // the horizon is not there yet
		}
	}
}

func (c consumer) oneBatch(ctx context.Context, tx pgx.Tx, s source, f *flow) (int, error) {
	rows, err := tx.Query(ctx, s.read, batchSize)
	if err != nil {
		return 0, err
	}
	var cursor []any
	events := make([]platform.Event, 0, batchSize)
	for rows.Next() {
		var e platform.Event
		if cursor, err = s.place(rows, &e); err != nil {
			return 0, err
		}
		events = append(events, e)
	}
	if err := rows.Err(); err != nil || len(events) == 0 {
		return 0, err
	}
	b := &pgx.Batch{}
	switch c.variant {
	case "noop":
		f.call(len(events))
	case "unnest": // by hand, one sends it together with the cursor
		f.call(len(events))
		positions, data := columns(events)
		b.Queue(addMany, positions, data)
	case "each":
		for _, e := range events {
			f.call(1)
			if err := c.each(ctx, tx, e); err != nil {
				return 0, err
			}
		}
	default:
		return 0, fmt.Errorf("no loop by hand for %s", c.variant)
	}
	b.Queue(s.move, cursor...)
	return len(events), tx.SendBatch(ctx, b).Close()
}
