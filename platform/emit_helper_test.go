package platform_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/platformtest"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

// way is one of the ways to emit. It runs in a transaction of its own, committed
// if nothing was refused, and returns the event's id.
type way struct {
	name string
	emit func(ctx context.Context, e platform.NewEvent) (int64, error)
}

// ways are all the ways to emit into the database of pool. What one refuses all
// refuse, alike.
func ways(t *testing.T, pool *pgxpool.Pool) []way {
	t.Helper()
	db, err := sql.Open("pgx", pool.Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(3)
	// A business table whose trigger emits, as teams that do not write Go have it.
	if _, err := pool.Exec(t.Context(), `
		create table business (type text, target text, key text, data text, scope text, options text, event bigint);
		create function business_emit() returns trigger language plpgsql as $$
		begin
		  new.event := mill.emit(new.type, new.target, new.key, new.data::jsonb, new.scope, new.options::jsonb);
		  return new;
		end $$;
		create trigger emit before insert on business for each row execute function business_emit();`); err != nil {
		t.Fatal(err)
	}
	inTx := func(ctx context.Context, f func(tx pgx.Tx) (int64, error)) (id int64, err error) {
		err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			id, err = f(tx)
			return err
		})
		return id, err
	}
	return []way{
		{"pgx", func(ctx context.Context, e platform.NewEvent) (int64, error) {
			return inTx(ctx, func(tx pgx.Tx) (int64, error) { return last(platform.Emit(ctx, tx, e)) })
		}},
		{"pgx, as one of three", func(ctx context.Context, e platform.NewEvent) (int64, error) {
			good := platform.NewEvent{Type: "good.one", Target: "t"}
			return inTx(ctx, func(tx pgx.Tx) (int64, error) { return last(platform.Emit(ctx, tx, good, good, e)) })
		}},
		{"a pgx batch", func(ctx context.Context, e platform.NewEvent) (int64, error) {
			return inTx(ctx, func(tx pgx.Tx) (id int64, err error) {
				b := &pgx.Batch{}
				if _, err := platform.QueueEmit(b, e); err != nil {
					return 0, err
				}
				res := tx.SendBatch(ctx, b)
				err = res.QueryRow().Scan(&id)
				return id, errors.Join(err, res.Close())
			})
		}},
		{"database/sql", func(ctx context.Context, e platform.NewEvent) (int64, error) {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return 0, err
			}
			id, err := last(platform.Emit(ctx, platform.SQLTx(tx), e))
			if err != nil {
				return 0, errors.Join(err, tx.Rollback())
			}
			return id, tx.Commit()
		}},
		{"a trigger", func(ctx context.Context, e platform.NewEvent) (int64, error) {
			data, options, err := texts(e)
			if err != nil {
				return 0, err
			}
			return inTx(ctx, func(tx pgx.Tx) (id int64, err error) {
				err = tx.QueryRow(ctx, `insert into business values ($1, $2, nullif($3, ''), $4, coalesce(nullif($5, ''), 'install'), $6) returning event`,
					e.Type, e.Target, e.Key, data, e.Scope, options).Scan(&id)
				return id, err
			})
		}},
		{"emit_many", func(ctx context.Context, e platform.NewEvent) (int64, error) {
			data, options, err := texts(e)
			if err != nil {
				return 0, err
			}
			return inTx(ctx, func(tx pgx.Tx) (id int64, err error) {
				err = tx.QueryRow(ctx, `
					select (mill.emit_many(jsonb_build_array(jsonb_strip_nulls(jsonb_build_object('type', $1::text, 'target', $2::text, 'key', nullif($3::text, ''),
					  'scope', nullif($4::text, ''))) || jsonb_build_object('data', $5::text::jsonb) || $6::text::jsonb)))[1]`,
					e.Type, e.Target, e.Key, e.Scope, data, options).Scan(&id)
				return id, err
			})
		}},
	}
}

func last(ids []int64, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return ids[len(ids)-1], nil
}

// texts are an event's data and options as JSON, for who does not use Emit.
func texts(e platform.NewEvent) (data, options string, err error) {
	d := []byte("{}")
	if e.Data != nil {
		if d, err = json.Marshal(e.Data); err != nil {
			return "", "", err
		}
	}
	o := map[string]string{}
	if e.IdempotencyKey != "" {
		o["idempotency_key"] = e.IdempotencyKey
	}
	if e.TraceID != "" {
		o["trace_id"] = e.TraceID
	}
	b, err := json.Marshal(o)
	return string(d), string(b), err
}

func sqlState(err error) string {
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		return pe.Code
	}
	return ""
}

func ask[T any](t testing.TB, db pgtest.DB, query string, args ...any) T {
	t.Helper()
	return pgtest.Ask[T](t, db, query, args...)
}

func must(t testing.TB, db pgtest.DB, query string, args ...any) {
	t.Helper()
	pgtest.Exec(t, db, query, args...)
}

// nothingThere fails the test if an event or an idempotency key was stored.
func nothingThere(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	if n := ask[int](t, pool, `select (select count(*) from pgmill.event) + (select count(*) from pgmill.event_key)`); n != 0 {
		t.Errorf("%d rows are there, want none", n)
	}
}

// blocked waits until a session waits for a lock that the session pid holds.
func blocked(t *testing.T, pool *pgxpool.Pool, pid uint32) {
	t.Helper()
	platformtest.WaitFor(t, pool, `select exists (select from pg_stat_activity where $1::int = any (pg_blocking_pids(pid)))`, int32(pid))
}

func event(change func(*platform.NewEvent)) platform.NewEvent {
	e := platform.NewEvent{Type: "orders.placed", Target: "order-17"}
	if change != nil {
		change(&e)
	}
	return e
}

func raw(format string, args ...any) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(format, args...))
}

// splitSQL are the statements of a script; no semicolon may be within one.
func splitSQL(script string) []string {
	var all []string
	for _, s := range strings.Split(script, ";") {
		if s = strings.TrimSpace(s); s != "" {
			all = append(all, s)
		}
	}
	return all
}
