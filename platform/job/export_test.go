package job

import (
	"context"

	"github.com/pgmill/pgmill/platform/internal/claim"
)

// Fetch is what River calls.
func (e *Engine) Fetch(ctx context.Context, max int) (claims int, err error) {
	got, err := e.fetch(ctx, max)
	return len(got), err
}

// Work is what River has done for each claim.
func (e *Engine) Work(ctx context.Context, id int64) { e.work(ctx, claim.Claim{ID: id}) }

// Ended answers how many tasks are marked as cancelled.
func (e *Engine) Ended() (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, t := range e.tasks {
		if t.gone {
			n++
		}
	}
	return n
}

// CheckLarge is what large outputs are checked by.
var CheckLarge = checkLarge
