package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/platformtest"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

type echoed struct {
	N int64 `json:"n"`
}

// desk is a person at a terminal, with a host that has three steps.
type desk struct {
	*testing.T
	url  string
	pool *pgxpool.Pool
}

func newDesk(t *testing.T, args ...string) desk {
	t.Helper()
	reg := platform.NewRegistry()
	for _, s := range []platform.Function{
		platform.Step[echoed, echoed]{Topic: "job.t.echo", Run: func(_ context.Context, _ *platform.Attempt, in echoed) (echoed, error) { return in, nil }},
		platform.Step[json.RawMessage, echoed]{Topic: "job.t.fail", Run: func(context.Context, *platform.Attempt, json.RawMessage) (echoed, error) {
			return echoed{}, platform.Fail("t.broken", nil)
		}},
		platform.Step[json.RawMessage, string]{Topic: "job.t.large", Run: func(context.Context, *platform.Attempt, json.RawMessage) (string, error) {
			return strings.Repeat("x", platform.MaxOutput), nil
		}},
	} {
		if err := reg.Add(s); err != nil {
			t.Fatal(err)
		}
	}
	dsn := platformtest.DSN(t)
	d := desk{t, platformtest.Serve(t, dsn, reg, args...), platformtest.Pool(t, dsn)}
	platformtest.WaitFor(t, d.pool, `select exists (select from mill.functions where name = 'job.t.echo' and live_hosts > 0)`)
	return d
}

// output may be written by several.
type out struct {
	mu sync.Mutex
	bytes.Buffer
}

func (o *out) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.Buffer.Write(b)
}

// types runs a command and answers its output; the exit code must be code.
func (d desk) types(code int, args ...string) string {
	d.Helper()
	stdout, stderr := d.apart(code, args...)
	return stdout + stderr
}

// apart is types with the two outputs apart.
func (d desk) apart(code int, args ...string) (string, string) {
	d.Helper()
	var stdout, stderr out
	env := func(name string) string { return map[string]string{"PGMILL_URL": d.url}[name] }
	if got := run(d.Context(), args, env, strings.NewReader(`{"n": 9223372036854775807}`), &stdout, &stderr); got != code {
		d.Fatalf("pgmill %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), got, code, &stdout.Buffer, &stderr.Buffer)
	}
	return stdout.String(), stderr.String()
}

// submits answers the new job's id.
func (d desk) submits(args ...string) string {
	d.Helper()
	id, _ := d.apart(0, append([]string{"job", "submit"}, args...)...)
	return strings.TrimSpace(id)
}

func (d desk) shows(text string, parts ...string) {
	d.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			d.Errorf("%q is not in\n%s", p, text)
		}
	}
}

func TestJobsAtTheTerminal(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.shows(d.types(0, "job", "submit", "--topic", "job.t.echo", "--input", "-", "--wait"), "SUCCEEDED", `{"n":9223372036854775807}`)
	d.shows(d.types(1, "job", "submit", "--topic", "job.t.fail", "--wait"), "FAILED", "t.broken")
	d.shows(d.types(2, "job", "submit", "--topic", "job.t.echo", "--input", `{"n": "x"}`), "schema_validation_failed", "/n")
	d.shows(d.types(2, "job", "submit", "--topic", "job.t.echo", "--input", `{`), "no JSON")
	d.shows(d.types(2, "job", "list", "--limt", "3"), "unknown flag")
	d.shows(d.types(2, "job", "list", "-o", "xml"), "table or json")
	d.shows(d.types(5, "job", "get", "nothing"), "job not found")
	d.shows(d.types(0, "job", "list", "--state", "failed"), "job.t.fail", "t.broken")
	var page struct{ Items []struct{ ID string } }
	if err := json.Unmarshal([]byte(d.types(0, "job", "list", "-o", "json", "--topic", "job.t.fail")), &page); err != nil || len(page.Items) != 1 {
		t.Fatalf("the list as json is %v, %v", page, err)
	}
	d.shows(d.types(0, "job", "logs", page.Items[0].ID), "t.broken")
	d.shows(d.types(1, "job", "watch", page.Items[0].ID), "FAILED")
	d.shows(d.types(0, "dlq", "list"), page.Items[0].ID)
	d.shows(d.types(0, "dlq", "counts"), "t.broken", "job.t.fail")
	d.types(2, "dlq", "retry")
	d.types(2, "dlq", "delete", "x", "--all")
	d.shows(d.types(0, "dlq", "retry", page.Items[0].ID), "-retry-")
	d.types(5, "dlq", "retry", "nothing")
	waiting := d.submits("--topic", "job.t.nobody", "--delay", "1h")
	d.shows(d.types(0, "job", "cancel", waiting, "--reason", "ops.mistake"), "CANCELLED")
	d.types(3, "job", "list", "--url", "http://127.0.0.1:1")
}

func TestConfigurationAtTheTerminal(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	file := filepath.Join(t.TempDir(), "pools.json")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := d.types(0, "pools", "get"); got != "{}\n" {
		t.Errorf("without pools it shows %s", got)
	}
	write(`{"topics": {"job.a": "p"}, "pools": {"p": {}}}`)
	d.shows(d.types(0, "pools", "set", "-f", file, "--reason", "ops.first"), "version 1")
	write(`{"topics": {"job.a": "q"}}`)
	d.shows(d.types(2, "pools", "set", "-f", file), "schema_validation_failed", "\n  each pool of a topic must be listed in pools")
	d.shows(d.types(0, "pools", "get"), "version 1", "a later one was refused", `"job.a": "p"`)
	d.shows(d.types(0, "pools", "get", "-o", "json"), `"version": 1`, `"rejected": {`, `"reason": "schema_validation_failed"`)
	d.shows(d.types(2, "pools", "set", "-f", "-"), "topics and pools and nothing else") // {"n": …}
	d.shows(d.types(2, "timeouts", "set", "-f", "-"), "/n: must be topics, workflows or reconciler")
	write(`{"topics": {"job.a": {"timeout_seconds": 60}}}`)
	d.shows(d.types(0, "timeouts", "set", "-f", file, "-o", "json"), `"version": 1`)
	d.shows(d.types(0, "timeouts", "get"), `"timeout_seconds": 60`)
	write(`{`)
	d.shows(d.types(2, "timeouts", "set", "-f", file), "no JSON")
	d.shows(d.types(2, "timeouts", "set", "-f", file+"x"), "no such file")
	d.shows(d.types(2, "timeouts", "set"), "-f FILE")
}

func TestWorkersAtTheTerminal(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	id := d.submits("--topic", "job.t.hand", "--input", `{"a": 1}`)
	d.types(0, "job", "submit", "--topic", "job.t.hand")
	var got struct {
		Jobs []struct {
			JobID string `json:"job_id"`
			Token string `json:"token"`
		}
	}
	if err := json.Unmarshal([]byte(d.types(0, "worker", "claim", "--topic", "job.t.hand", "-o", "json")), &got); err != nil || len(got.Jobs) != 1 || got.Jobs[0].JobID != id {
		t.Fatalf("claimed %v, %v; want %s", got, err, id)
	}
	token := got.Jobs[0].Token
	d.shows(d.types(0, "worker", "heartbeat", id, token), "false")
	d.types(0, "worker", "progress", id, token, "--percent", "50", "--message", "half")
	d.shows(d.types(0, "job", "get", id), "RUNNING", "50 % half")
	d.shows(d.types(6, "worker", "complete", id, "1-wrong"), "lease_lost")
	d.shows(d.types(0, "worker", "complete", id, token, "--output", `{"b": 2}`), "SUCCEEDED")
	d.shows(d.types(0, "worker", "run", "--topic", "job.t.hand", "--jobs", "1", "--", "sh", "-c", "cat; echo $PGMILL_ATTEMPT"), "complete: SUCCEEDED")
	d.types(0, "worker", "claim", "--pools", "gpu,tpu", "--labels", "zone=a", "--name", "w9") // there is nothing yet
	d.shows(d.types(0, "worker", "list"), "host  ", "w9", "outside", "gpu,tpu", "zone=a")
	id = d.submits("--topic", "job.t.hand", "--placement", "zone=b")
	d.types(0, "worker", "run", "--topic", "job.t.hand", "--labels", "zone=b", "--jobs", "1", "--", "cat")
	d.shows(d.types(0, "job", "get", id), "SUCCEEDED")
	for script, want := range map[string]string{"exit 65": "worker.exit_65", "echo '[1, 2]'": "[1,2]", "echo plain": "plain"} {
		id := d.submits("--topic", "job.t.run", "--idempotency-key", script)
		d.types(0, "worker", "run", "--topic", "job.t.run", "--jobs", "1", "--", "sh", "-c", script)
		d.shows(d.types(0, "job", "get", id), want)
	}
}

// A host says what it is of and what it has when it starts, and takes jobs by that.
func TestAHostOfAPool(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "--pools", "p", "--labels", "zone=a,disk=ssd")
	file := filepath.Join(t.TempDir(), "pools.json")
	if err := os.WriteFile(file, []byte(`{"topics": {"job.t.echo": "p", "job.t.fail": "q"}, "pools": {"p": {"requires": ["gpu"]}, "q": {}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	d.types(0, "pools", "set", "-f", file)
	elsewhere := d.submits("--topic", "job.t.fail")
	nowhere := d.submits("--topic", "job.t.echo", "--input", `{"n": 1}`, "--placement", "zone=b")
	d.shows(d.types(0, "job", "submit", "--topic", "job.t.echo", "--input", `{"n": 1}`, "--requires", "gpu", "--placement", "zone=a", "--wait"), "SUCCEEDED")
	for _, id := range []string{elsewhere, nowhere} {
		d.shows(d.types(0, "job", "get", id), "PENDING", "no_workers")
	}
	d.shows(d.types(0, "worker", "list"), "host", "disk=ssd,zone=a", "job.t.echo")
}

// A cancel stops the command; told to stop, the worker gives its job back.
func TestAWorkersCommandIsStopped(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	env := func(name string) string { return map[string]string{"PGMILL_URL": d.url}[name] }
	var stderr out
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"worker", "run", "--topic", "job.t.long", "--lease", "10s", "--", "sleep", "60"}, env, nil, &out{}, &stderr)
	}()
	for _, last := range []bool{false, true} {
		id := d.submits("--topic", "job.t.long")
		platformtest.WaitFor(t, d.pool, `select exists (select from mill.jobs where id = $1 and state = 'RUNNING')`, id)
		if !last {
			d.types(0, "job", "cancel", id)
			continue // the next one runs when this one was dropped
		}
		stop()
		if code := <-ended; code != 0 {
			t.Errorf("told to stop it ended with %d: %s", code, &stderr.Buffer)
		}
		platformtest.WaitFor(t, d.pool, `select exists (select from mill.jobs where id = $1 and state = 'PENDING' and attempt = 0)`, id)
	}
}

// C184: an output that is too large for the job's record is fetched all the same.
func TestLargeOutputAtTheTerminal(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.shows(d.types(0, "job", "submit", "--topic", "job.t.large", "--wait"), "SUCCEEDED", "262146 bytes: pgmill job get ")
	id := pgtest.Ask[string](t, d.pool, `select id from mill.jobs`)
	if got := d.types(0, "job", "get", id, "--raw"); got != `"`+strings.Repeat("x", platform.MaxOutput)+`"` {
		t.Errorf("get --raw printed %d bytes", len(got))
	}
	var job struct{ Output string }
	if err := json.Unmarshal([]byte(d.types(0, "job", "get", id, "-o", "json")), &job); err != nil || len(job.Output) != platform.MaxOutput {
		t.Errorf("get -o json: %v, an output of %d", err, len(job.Output))
	}
}
