package demo_test

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/platformtest"
)

const (
	quick = `{"text": "quick"}`
	slow  = `{"text": "slow", "sleep": 60}`
)

// field is a database, a host that serves its API, and workers at it.
type field struct {
	*testing.T
	dsn, url string
	pool     *pgxpool.Pool
	command  func(topic string) []string
}

// worker starts one, in a process group of its own, which is killed at the end of the test.
func (f field) worker(topic string) *exec.Cmd {
	f.Helper()
	line := f.command(topic)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env = append(os.Environ(), "PGMILL_URL="+f.url, "DATABASE_URL="+f.dsn, "LEASE_SECS=6")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { f.kill(cmd) })
	return cmd
}

// kill ends a worker and what it started, without a word.
func (f field) kill(cmd *exec.Cmd) {
	if cmd.ProcessState == nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	}
}

func (f field) submit(topic, input string) (id string) {
	f.Helper()
	if err := f.pool.QueryRow(f.Context(), `select mill.submit_job($1, $2::text::jsonb)`, topic, input).Scan(&id); err != nil {
		f.Fatal(err)
	}
	return id
}

func (f field) becomes(id, state string) {
	f.Helper()
	platformtest.WaitFor(f, f.pool, `select exists (select from mill.jobs where id = $1 and state = $2)`, id, state)
}

// The workers that ship do jobs for real; each hears of a cancel, gives back what it has when
// it is told to stop, and whoever is killed loses its job to another after its lease.
func TestWorkersInOtherLanguages(t *testing.T) {
	t.Parallel()
	for _, language := range []struct {
		name, needs string
		command     func(topic string) []string
	}{
		{"python", "python3", func(topic string) []string { return []string{"python3", "workers/worker.py", topic} }},
		{"bash", "bash", func(topic string) []string {
			return []string{"bash", "workers/worker.sh", topic, "--", "sh", "-c", `read -r in; case $in in *slow*) exec sleep 60;; esac; echo "{}"`}
		}},
	} {
		t.Run(language.name, func(t *testing.T) {
			t.Parallel()
			for _, program := range []string{language.needs, "psql"} {
				if _, err := exec.LookPath(program); err != nil {
					t.Skipf("no %s here", program)
				}
			}
			dsn := platformtest.DSN(t)
			f := field{t, dsn, platformtest.Serve(t, dsn, platform.NewRegistry()), platformtest.Pool(t, dsn), language.command}
			topic := "job.workers." + language.name

			f.worker(topic)
			f.becomes(f.submit(topic, quick), "SUCCEEDED")
			id := f.submit(topic, slow)
			f.becomes(id, "RUNNING")
			if _, err := f.pool.Exec(t.Context(), `select mill.cancel($1)`, id); err != nil {
				t.Fatal(err)
			}
			f.becomes(f.submit(topic, quick), "SUCCEEDED") // it does one at a time

			topic += "_killed"
			first := f.worker(topic)
			id = f.submit(topic, slow)
			f.becomes(id, "RUNNING")
			f.kill(first)
			platformtest.WaitFor(t, f.pool, `select exists (select from pgmill.job_attempt where job = $1 and reason = 'host_lost')`, id)
			second := f.worker(topic)
			f.becomes(id, "RUNNING")

			if err := second.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if err := second.Wait(); err != nil {
				t.Errorf("told to stop it ended with %v", err)
			}
			f.becomes(id, "PENDING")
			var attempts int
			if err := f.pool.QueryRow(t.Context(), `select count(*)::int from pgmill.job_attempt where job = $1`, id).Scan(&attempts); err != nil || attempts != 1 {
				t.Errorf("%d attempts counted, %v; want that of the killed one", attempts, err)
			}
		})
	}
}
