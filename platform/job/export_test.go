package job

import "context"

// Fetch is what River calls.
func (e *Engine) Fetch(ctx context.Context, max int) (claims int, err error) {
	got, err := e.fetch(ctx, max)
	return len(got), err
}

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
