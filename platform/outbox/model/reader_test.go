package model

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// reader follows the log from position 0 in small pages, as a stream's client does.
type reader struct {
	name string
	mu   sync.Mutex
	got  []record
	pos  int64
	bad  []fault
}

// page reads what comes next and reports whether there was anything.
func (r *reader) page(ctx context.Context, w *world) (bool, error) {
	rows, err := w.pool.Query(ctx, `
		select l.pos, e.id, e.type, coalesce(e.key, ''), coalesce((e.data ->> 'n')::bigint, 0)
		  from pgmill.log l join pgmill.event e on e.id = l.event_id
		 where l.pos > $1 order by l.pos limit 7`, r.pos)
	if err != nil {
		return false, err
	}
	before := r.pos
	var pos int64
	var kind string
	var rec record
	_, err = pgx.ForEachRow(rows, []any{&pos, &rec.id, &kind, &rec.key, &rec.n}, func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if pos != r.pos+1 {
			r.bad = append(r.bad, faultf("hole", "%s: position %d comes after %d", r.name, pos, r.pos))
		}
		r.pos = pos
		if kind == "model.w" {
			r.got = append(r.got, rec)
		}
		return nil
	})
	return r.pos > before, err
}

// follow reads until ctx ends, then to the end.
func (r *reader) follow(ctx context.Context, t testing.TB, w *world) {
	for {
		more, err := r.page(context.WithoutCancel(ctx), w)
		if err != nil {
			t.Errorf("reader: %v", err)
			return
		}
		if more {
			continue
		}
		select {
		case <-ctx.Done():
			if more, err = r.page(context.WithoutCancel(ctx), w); !more || err != nil {
				return
			}
		case <-time.After(time.Millisecond):
		}
	}
}

// advancers are hosts' looks without hosts, many at a time.
func (w *world) advance(ctx context.Context, t testing.TB, faults *found) {
	for ctx.Err() == nil {
		if _, err := w.pool.Exec(context.WithoutCancel(ctx), `select pgmill.advance()`); err != nil {
			faults.add(faultf("error", "advance: %v", err))
			doze(5 * time.Millisecond)
		}
		time.Sleep(rand.N(2 * time.Millisecond))
	}
}

// found collects faults from several goroutines.
type found struct {
	mu  sync.Mutex
	all []fault
}

func (f *found) add(faults ...fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, faults...)
}
