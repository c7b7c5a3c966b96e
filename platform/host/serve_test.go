package host

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
)

// running is a host of this process, started by the command line.
type running struct {
	t           *testing.T
	signals     chan os.Signal
	code        chan int
	out, errs   output
	addr        string
	interrupted time.Time
}

// start runs serve or worker and returns when the probes answer.
func start(t *testing.T, reg *platform.Registry, environ []string, args ...string) *running {
	t.Helper()
	r := &running{t: t, signals: make(chan os.Signal, 2), code: make(chan int, 1)}
	o := &options{reg: reg, stdin: strings.NewReader(""), stdout: &r.out, stderr: &r.errs, environ: environ, self: "host", signals: r.signals}
	go func() {
		r.code <- o.run(context.WithoutCancel(t.Context()), append(args, "--addr", "127.0.0.1:0", "--log-format", "json"))
	}()
	r.addr = r.errs.await(t, `"addr":"([^"]+)"`)
	return r
}

// hears waits for a handler to start; a host that ends instead says why.
func (r *running) hears(started chan struct{}) {
	r.t.Helper()
	select {
	case <-started:
	case code := <-r.code:
		r.t.Fatalf("the host ended with %d before its handler had started; %s", code, &r.errs)
	case <-time.After(30 * time.Second):
		r.t.Fatalf("the handler does not start; %s", &r.errs)
	}
}

func (r *running) signal() {
	r.interrupted = time.Now()
	r.signals <- syscall.SIGTERM
}

// exits waits for the exit code.
func (r *running) exits(want int, within time.Duration) {
	r.t.Helper()
	select {
	case code := <-r.code:
		if code != want {
			r.t.Errorf("exit code %d, want %d; %s", code, want, &r.errs)
		}
	case <-time.After(within - time.Since(r.interrupted)):
		r.t.Fatalf("still running %v after the signal", within)
	}
}

func (r *running) probe(path string) (int, probe) {
	r.t.Helper()
	code, body := r.get(path)
	var p probe
	if err := json.Unmarshal(body, &p); err != nil {
		r.t.Fatalf("%s: %v: %s", path, err, body)
	}
	return code, p
}

func (r *running) get(path string) (code int, body []byte) {
	r.t.Helper()
	res, err := http.Get("http://" + r.addr + path)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	body, _ = io.ReadAll(res.Body)
	return res.StatusCode, body
}

// becomes asks readyz until it answers with this code and reason.
func (r *running) becomes(code int, reason platform.Reason) {
	r.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		got, p := r.probe("/readyz")
		if got == code && (reason == "" || len(p.Reasons) > 0 && p.Reasons[0] == reason) {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("readyz: %d %+v, want %d %s; log: %s", got, p, code, reason, &r.errs)
		}
	}
}

// blocking has one function that says when it starts and goes on when it is let.
func blocking(t *testing.T) (reg *platform.Registry, started, goOn chan struct{}) {
	t.Helper()
	reg, started, goOn = platform.NewRegistry(), make(chan struct{}, 100), make(chan struct{})
	err := reg.Add(platform.Subscription{Name: "a.slow", Events: []string{"test.slow"}, Owners: platform.OwnedBy("test"), From: platform.FromZero,
		Handle: func(ctx context.Context, tx pgx.Tx, e platform.Event) error {
			started <- struct{}{}
			select {
			case <-goOn:
				_, err := tx.Exec(ctx, "insert into effect values ($1)", e.ID)
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	return reg, started, goOn
}

func emitSlow(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn := connected(t, dsn)
	for _, sql := range []string{"create table effect (id bigint)", "select mill.emit('test.slow', 't')"} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	return conn
}

// N72: serve and worker answer the same probes, field by field, and the same series.
func TestServeAndWorkerShareOneProbeContract(t *testing.T) {
	t.Parallel()
	type answers struct {
		live, ready, verbose probe
		codes                [3]int
		series               string
	}
	of := map[string]answers{}
	for _, kind := range []string{"serve", "worker"} {
		host := start(t, withFunctions(t, "a.one"), []string{"DATABASE_URL=" + migratedDatabase(t)}, kind)
		host.becomes(200, "")
		var a answers
		a.codes[0], a.live = host.probe("/livez")
		a.codes[1], a.ready = host.probe("/readyz")
		a.codes[2], a.verbose = host.probe("/readyz?verbose")
		if a.verbose.Kind != kind || a.verbose.Worker == "" {
			t.Errorf("%s says that it is %q, %q", kind, a.verbose.Kind, a.verbose.Worker)
		}
		a.verbose.Kind, a.verbose.Worker = "", ""
		a.ready, a.verbose.Status, a.verbose.Reasons = probe{}, "", nil // LISTEN may be proven in one and not yet in the other
		_, body := host.get("/metrics")
		for line := range strings.Lines(string(body)) {
			if strings.HasPrefix(line, "# TYPE pgmill_") {
				a.series += line
			}
		}
		if a.series == "" {
			t.Errorf("%s has no series of ours", kind)
		}
		of[kind] = a
		host.signal()
		host.exits(exitOK, 15*time.Second)
	}
	if !reflect.DeepEqual(of["serve"], of["worker"]) {
		t.Errorf("serve answers\n%+v\nworker\n%+v", of["serve"], of["worker"])
	}
}

// N75, F46: at the first SIGTERM not ready at once, live to the end; the handler
// that runs finishes; exit code 0.
func TestServeDrainsOnSignal(t *testing.T) {
	t.Parallel()
	dsn := migratedDatabase(t)
	conn := emitSlow(t, dsn)
	reg, started, goOn := blocking(t)
	host := start(t, reg, []string{"DATABASE_URL=" + dsn}, "serve")
	<-started
	host.becomes(200, "")
	host.signal()
	host.becomes(503, platform.ReasonDraining)
	if code, p := host.probe("/livez"); code != 200 || p.Status != "live" {
		t.Errorf("livez while draining: %d %+v", code, p)
	}
	close(goOn)
	host.exits(exitOK, 12*time.Second)
	var effects, held int
	err := conn.QueryRow(t.Context(), `select (select count(*) from effect),
		(select count(*) from mill.instances where live) + (select count(*) from pgmill.shard where attempts > 0)`).Scan(&effects, &held)
	if err != nil || effects != 1 || held != 0 {
		t.Errorf("%d effects, %d live instances and burnt attempts, %v", effects, held, err)
	}
	if strings.Contains(host.errs.String(), `"level":"ERROR"`) {
		t.Errorf("log: %s", &host.errs)
	}
}

// F46: a handler that outlasts the grace is handed back without a failed attempt.
func TestServeEndsWithinGrace(t *testing.T) {
	t.Parallel()
	dsn := migratedDatabase(t)
	conn := emitSlow(t, dsn)
	reg, started, _ := blocking(t)
	host := start(t, reg, []string{"DATABASE_URL=" + dsn, "PGMILL_GRACE=1s"}, "worker")
	host.hears(started)
	host.signal()
	host.exits(exitOK, 3*time.Second)
	var attempts int
	if err := conn.QueryRow(t.Context(), "select coalesce(sum(attempts), 0) from pgmill.shard").Scan(&attempts); err != nil || attempts != 0 {
		t.Errorf("%d attempts burnt, %v", attempts, err)
	}
}

func TestSecondSignalStopsAtOnce(t *testing.T) {
	t.Parallel()
	dsn := migratedDatabase(t)
	emitSlow(t, dsn)
	reg, started, goOn := blocking(t)
	defer close(goOn)
	host := start(t, reg, []string{"DATABASE_URL=" + dsn, "PGMILL_GRACE=20s"}, "serve")
	host.hears(started)
	host.signal()
	host.signal()
	host.exits(exitSignal, 2*time.Second)
}

// N73, N74, F83: without a database it lives, is not ready, logs at most a line a
// second, and stops when told.
func TestServeWaitsForItsDatabase(t *testing.T) {
	t.Parallel()
	for _, migrate := range []string{"true", "false"} {
		t.Run("migrate="+migrate, func(t *testing.T) {
			t.Parallel()
			host := start(t, platform.NewRegistry(), []string{"DATABASE_URL=postgres://ann:C4NARY@127.0.0.1:1/d", "PGMILL_MIGRATE=" + migrate}, "serve")
			began := time.Now()
			host.becomes(503, platform.ReasonDatabaseUnreachable)
			host.errs.await(t, `(?s)(WARN.*WARN.*WARN)`)
			if code, _ := host.probe("/livez"); code != 200 {
				t.Errorf("livez: %d", code)
			}
			if n := strings.Count(host.errs.String(), "WARN"); float64(n) > 1.5+time.Since(began).Seconds() {
				t.Errorf("%d lines in %v", n, time.Since(began))
			}
			host.signal()
			host.exits(exitOK, 3*time.Second)
			if strings.Contains(host.errs.String(), "C4NARY") {
				t.Errorf("the DSN is in %s", &host.errs)
			}
		})
	}
}

func TestServeOnATakenAddressSaysSo(t *testing.T) {
	t.Parallel()
	host := start(t, platform.NewRegistry(), []string{"DATABASE_URL=postgres://127.0.0.1:1/d"}, "serve")
	sh := shell{t: t, reg: platform.NewRegistry(), environ: []string{"DATABASE_URL=postgres://127.0.0.1:1/d"}}
	if code, _, stderr := sh.run("serve", "--addr", host.addr); code != exitFailed || !strings.Contains(stderr, "choose another --addr") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	host.signal()
	host.exits(exitOK, 3*time.Second)
}
