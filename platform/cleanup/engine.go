package cleanup

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/internal/db"
)

// Engine runs the clean-ups of this build. Cleanups, Pool and Log are needed.
type Engine struct {
	Cleanups []platform.Cleanup
	// Role is what a module's statements run as; "", or nil, of one that has no role.
	Role func(module string) string
	// Keep is the manifest: how long, by Cleanup.Key. What it lacks is the declaration's.
	Keep map[string]time.Duration
	// Pool is where batches run, each for a moment: not the handlers', whose ticks wait.
	Pool *pgxpool.Pool
	Log  *slog.Logger
	// Deleted hears of each batch's rows, Done of each tick that went well, by
	// Cleanup.Key; either may be nil.
	Deleted func(key string, rows int)
	Done    func(key string)
}

// Schedules are what the ticks of clean-ups come from.
func (e *Engine) Schedules() []platform.Schedule {
	all := make([]platform.Schedule, len(e.Cleanups))
	for i, c := range e.Cleanups {
		all[i] = c.Schedule(func(ctx context.Context, _ pgx.Tx, _ platform.Tick) error { return e.Clean(ctx, c) })
	}
	return all
}

// rule is what pgmill.declare_retention puts in place.
type rule struct {
	Name        string         `json:"name"`
	Class       *string        `json:"class"` // nil: a statement of its author's
	Scope       platform.Scope `json:"scope"`
	KeepSeconds float64        `json:"keep_seconds"`
	Batch       int            `json:"batch"`
}

// Declare writes down how long the clean-ups of this build keep what. Their schedules
// are declared before.
func (e *Engine) Declare(ctx context.Context) error {
	if len(e.Cleanups) == 0 {
		return nil
	}
	rules := make([]rule, len(e.Cleanups))
	for i, c := range e.Cleanups {
		rules[i] = rule{Name: c.Name, Scope: c.Scope, KeepSeconds: e.keep(c).Seconds(), Batch: c.Rule.Batch}
		if c.Rule.Class != "" {
			rules[i].Class = &c.Rule.Class
		}
	}
	body, err := json.Marshal(rules)
	if err != nil {
		return err
	}
	if err := db.New(e.Pool).RetentionDeclare(ctx, body); err != nil {
		return fmt.Errorf("declare retention: %w", err)
	}
	return nil
}

func (e *Engine) keep(c platform.Cleanup) time.Duration {
	if keep, ok := e.Keep[c.Key()]; ok {
		return keep
	}
	return c.Rule.Keep
}

// Clean is one tick of a clean-up: batches, scope by scope, until nothing is left or
// half of its timeout has passed.
func (e *Engine) Clean(ctx context.Context, c platform.Cleanup) error {
	enough, cancel := context.WithTimeout(ctx, c.Timeout/2)
	defer cancel()
	total := 0
	for scope := ""; enough.Err() == nil; {
		var err error
		if scope, err = db.New(e.Pool).CleanupScope(ctx, db.CleanupScopeParams{Name: c.Name, After: scope}); err != nil {
			return fmt.Errorf("next scope of clean-up %s: %w", c.Name, err)
		}
		if scope == "" {
			break
		}
		for enough.Err() == nil {
			n, err := e.batch(ctx, c, scope)
			if err != nil {
				return fmt.Errorf("clean-up %s in scope %s: %w", c.Name, scope, err)
			}
			if n == 0 {
				break
			}
			total += n
			if e.Deleted != nil {
				e.Deleted(c.Key(), n)
			}
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if total > 0 {
		e.Log.Info("cleaned up", "function", c.Name, "rows", total, "more", enough.Err() != nil)
	}
	if e.Done != nil {
		e.Done(c.Key())
	}
	return nil
}

// batch deletes at most Batch rows of a scope in a transaction of its own and answers
// how many; 0 also if another cleaner is at it.
func (e *Engine) batch(ctx context.Context, c platform.Cleanup, scope string) (n int, err error) {
	err = pgx.BeginFunc(ctx, e.Pool, func(tx pgx.Tx) error {
		q := db.New(tx)
		if err := q.CleanupRole(ctx, e.role(c)); err != nil {
			return err
		}
		if c.Rule.Class != "" {
			deleted, err := q.CleanupBatch(ctx, db.CleanupBatchParams{Name: c.Name, OfScope: scope})
			n = max(0, int(deleted))
			return err
		}
		if mine, err := q.CleanupTurn(ctx, c.Name); err != nil || !mine {
			return err
		}
		tag, err := tx.Exec(ctx, c.Rule.Delete, e.keep(c), c.Rule.Batch)
		if n = int(tag.RowsAffected()); n > c.Rule.Batch { // rolled back, and no better the next time
			return &platform.Failure{Reason: platform.ReasonBatchTooBig, Final: true, Cause: fmt.Errorf("the statement deleted %d rows, and may %d at a time: limit it by $2", n, c.Rule.Batch)}
		}
		return err
	})
	return n, err
}

// role is what batches of a clean-up run as: never the host.
func (e *Engine) role(c platform.Cleanup) string {
	switch {
	case c.Rule.Class != "":
		return "pgmill_cleanup"
	case e.Role != nil:
		return cmp.Or(e.Role(c.Module), "mill_cleaner")
	default:
		return "mill_cleaner"
	}
}
