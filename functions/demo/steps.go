package demo

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
)

// Sleep is the input of job.demo.sleep.
type Sleep struct {
	Ms int64 `json:"ms"`
}

// Flaky is the input of job.demo.flaky.
type Flaky struct {
	FailTimes int `json:"fail_times"`
}

// Done is what the demo's steps answer.
type Done struct {
	Attempts int `json:"attempts"`
}

func init() {
	platform.Register(
		platform.Step[json.RawMessage, json.RawMessage]{Topic: "job.demo.echo", Handle: echo},
		platform.Step[Sleep, Done]{Topic: "job.demo.sleep", Run: sleep, Timeout: time.Hour},
		platform.Step[json.RawMessage, Done]{Topic: "job.demo.fail", Run: fail},
		platform.Step[Flaky, Done]{Topic: "job.demo.flaky", Run: flaky, MaxAttempts: 10, Backoff: 100 * time.Millisecond},
	)
}

// echo answers its input.
func echo(_ context.Context, _ pgx.Tx, in json.RawMessage) (json.RawMessage, error) { return in, nil }

// sleep rests, and says how far it is.
func sleep(ctx context.Context, a *platform.Attempt, in Sleep) (Done, error) {
	end := time.NewTimer(time.Duration(in.Ms) * time.Millisecond)
	defer end.Stop()
	began, word := time.Now(), time.NewTicker(time.Second)
	defer word.Stop()
	for {
		select {
		case <-ctx.Done():
			return Done{}, context.Cause(ctx)
		case <-word.C:
			_ = a.Progress(ctx, int(time.Since(began).Milliseconds()*100/max(1, in.Ms)), "")
		case <-end.C:
			return Done{a.Number}, nil
		}
	}
}

// fail fails for good.
func fail(context.Context, *platform.Attempt, json.RawMessage) (Done, error) {
	return Done{}, platform.Fail("demo.failed", nil)
}

// flaky fails so many times, and then not.
func flaky(_ context.Context, a *platform.Attempt, in Flaky) (Done, error) {
	if a.Number <= in.FailTimes {
		return Done{}, platform.Because("demo.flaky", nil)
	}
	return Done{a.Number}, nil
}
