package host

import (
	"regexp"
	"testing"
	"time"

	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

// The lag in the metrics is that of now: it comes, and goes when all is handled.
func TestLagComesAndGoes(t *testing.T) {
	t.Parallel()
	dsn := migratedDatabase(t)
	conn := connected(t, dsn)
	host := start(t, withFunctions(t, "a.one", "a.two"), []string{"DATABASE_URL=" + dsn}, "worker")
	host.becomes(200, "")
	pgtest.Exec(t, conn, `select mill.pause_subscription('a.one', 'test')`)
	pgtest.Exec(t, conn, `select mill.emit('test.event', 't' || i) from generate_series(1, 3) i`)
	for _, want := range []string{`{subscription="a.one"} 3`, `{subscription="a.one"} 0`} {
		host.shows("pgmill_subscription_lag_events"+want, "pgmill_subscription_lag_events"+`{subscription="a.two"} 0`)
		pgtest.Exec(t, conn, `select mill.resume_subscription('a.one')`)
	}
	host.signal()
	host.exits(exitOK, 15*time.Second)
}

// C41: a job that no host has settled is in the metrics, too, when it ends without success.
func TestDeadLettersAreInTheMetrics(t *testing.T) {
	t.Parallel()
	dsn := migratedDatabase(t)
	conn := connected(t, dsn)
	host := start(t, withFunctions(t, "a.one"), []string{"DATABASE_URL=" + dsn}, "worker")
	host.becomes(200, "")
	pgtest.Exec(t, conn, `select mill.submit_job('job.nobodys', options => '{"max_queue_wait_ms":1}'), mill.submit_job('job.outside')`)
	pgtest.Exec(t, conn, `select mill.fail_job(job_id, token, 't.bad', false) from mill.claim_jobs('w1', '{job.outside}')`)
	host.shows(`pgmill_dead_letters_last_hour{state="timeout"} 1`, `pgmill_dead_letters_last_hour{state="failed"} 1`)
	host.signal()
	host.exits(exitOK, 15*time.Second)
}

// shows waits until the metrics have lines that match these.
func (r *running) shows(lines ...string) {
	r.t.Helper()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for patience := time.After(30 * time.Second); ; {
		_, body := r.get("/metrics")
		all := true
		for _, line := range lines {
			all = all && regexp.MustCompile("(?m)^"+line+"$").Match(body)
		}
		if all {
			return
		}
		select {
		case <-look.C:
		case <-patience:
			r.t.Fatalf("the metrics have not all of %q", lines)
		}
	}
}
