package demo_test

import (
	"testing"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/host"
	"github.com/pgmill/pgmill/platform/platformtest"
)

// The steps that the README shows do what they say.
func TestSteps(t *testing.T) {
	t.Parallel()
	dsn := platformtest.DSN(t)
	f := field{T: t, pool: platformtest.Pool(t, dsn)}
	only, err := platform.Default.Only("job.demo.echo", "job.demo.sleep", "job.demo.fail", "job.demo.flaky")
	if err != nil {
		t.Fatal(err)
	}
	platformtest.HostWith(t, &host.Worker{Database: dsn, Registry: only})
	for _, tt := range []struct{ topic, input, state, reason, output, attempts string }{
		{"job.demo.echo", `{"n": 9007199254740993}`, "SUCCEEDED", "", `{"n": 9007199254740993}`, "1"},
		{"job.demo.sleep", `{"ms": 1500}`, "SUCCEEDED", "", `{"attempts": 1}`, "1"},
		{"job.demo.fail", `{}`, "FAILED", "demo.failed", "", "1"},
		{"job.demo.flaky", `{"fail_times": 2}`, "SUCCEEDED", "", `{"attempts": 3}`, "3"},
	} {
		id := f.submit(tt.topic, tt.input)
		f.becomes(id, tt.state)
		var reason, output, attempts string
		var took, percent float64
		if err := f.pool.QueryRow(t.Context(), `select coalesce(reason, ''), coalesce(output::text, ''), attempt::text, extract(epoch from finished_at - started_at)::float8,
			coalesce((select percent from pgmill.job_progress where job = id), 0) from pgmill.job where id = $1`, id).Scan(&reason, &output, &attempts, &took, &percent); err != nil {
			t.Fatal(err)
		}
		if reason != tt.reason || output != tt.output || attempts != tt.attempts {
			t.Errorf("%s ended with reason %q, output %s after %s attempts; want %q, %s, %s", tt.topic, reason, output, attempts, tt.reason, tt.output, tt.attempts)
		}
		if tt.topic == "job.demo.sleep" && (took < 1.5 || percent < 66) {
			t.Errorf("it slept for %.2f s and said it was at %.0f %%; want 1.5 s, 66 %% after a second", took, percent)
		}
	}
}
