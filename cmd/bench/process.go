package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/cmd/bench/internal/lab"
)

var processScenarios = []lab.Scenario{
	{Name: "process:startup", Note: "`host serve` on a migrated database until /readyz answers 200", Run: startup},
	{Name: "process:idle", Note: "an idle `host serve`: share of a core, statements a second",
		Defaults: map[string]int{"secs": 30}, Run: idle},
}

func startup(ctx context.Context, r *lab.Run) error {
	dsn, err := migrated(ctx, r)
	if err != nil {
		return err
	}
	if err := withModules(ctx, dsn); err != nil {
		return err
	}
	r.Ops = 1
	r.Start()
	began := time.Now()
	p, err := serve(ctx, dsn)
	if err != nil {
		return err
	}
	r.Stop()
	r.Set("ready_s", time.Since(began).Seconds())
	return p.stop()
}

// idle waits ten seconds for first claims and lingering to be over, then looks at
// what the host does when there is nothing to do.
func idle(ctx context.Context, r *lab.Run) error {
	dsn, err := migrated(ctx, r)
	if err != nil {
		return err
	}
	if err := withModules(ctx, dsn); err != nil {
		return err
	}
	// Statements are counted in the host's database only, and read from another.
	if err := once(ctx, dsn, "alter database "+lab.RunDB+" set pg_stat_statements.track = 'top'"); err != nil {
		return fmt.Errorf("pg_stat_statements must be preloaded: %w", err)
	}
	admin, err := lab.Retarget(dsn, "postgres", "")
	if err != nil {
		return err
	}
	counter, err := pgx.Connect(ctx, admin)
	if err != nil {
		return err
	}
	defer counter.Close(ctx) //nolint:errcheck // nothing is lost
	if _, err := counter.Exec(ctx, "create extension if not exists pg_stat_statements"); err != nil {
		return err
	}
	p, err := serve(ctx, dsn)
	if err != nil {
		return err
	}
	defer p.stop() //nolint:errcheck // how it stops is for startup to say
	r.Own(p.cmd.Process.Pid)
	if err := rest(ctx, 10*time.Second); err != nil {
		return err
	}
	before, err := statements(ctx, counter)
	if err != nil {
		return err
	}
	cpu := lab.ProcessCPU(p.cmd.Process.Pid)
	r.Start()
	if err := rest(ctx, time.Duration(r.Param("secs"))*time.Second); err != nil {
		return err
	}
	cpu = lab.ProcessCPU(p.cmd.Process.Pid) - cpu
	after, err := statements(ctx, counter)
	if err != nil {
		return err
	}
	r.Ops = after - before
	r.Stop()
	secs := float64(r.Param("secs"))
	r.Set("statements_s", float64(after-before)/secs)
	r.Set("core_percent", 100*cpu/secs)
	r.Set("rss_mb", lab.MemoryMB(p.cmd.Process.Pid, "VmRSS"))
	return nil
}

func statements(ctx context.Context, conn *pgx.Conn) (calls int, err error) {
	err = conn.QueryRow(ctx, `select coalesce(sum(s.calls), 0)::bigint from pg_stat_statements s join pg_database d on d.oid = s.dbid where d.datname = $1`, lab.RunDB).Scan(&calls)
	return calls, err
}

func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

type hostProcess struct {
	cmd  *exec.Cmd
	gone chan struct{}
}

// serve starts the host, with settings of the environment, and returns when it is ready.
func serve(ctx context.Context, dsn string, settings ...string) (*hostProcess, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	cmd, err := hostCommand(dsn, port)
	if err != nil {
		return nil, err
	}
	cmd.Env = append(cmd.Env, settings...)
	var said tail
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &hostProcess{cmd: cmd, gone: make(chan struct{})}
	go func() { _ = cmd.Wait(); close(p.gone) }()
	for deadline := time.After(30 * time.Second); ; {
		if ready(ctx, port) {
			return p, nil
		}
		select {
		case <-time.After(2 * time.Millisecond):
		case <-p.gone:
			return nil, fmt.Errorf("the host ended before it was ready: %s", said.last())
		case <-deadline:
			return nil, errors.Join(errors.New("the host was not ready in 30 s"), p.stop())
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), p.stop())
		}
	}
}

func ready(ctx context.Context, port int) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/readyz", port), nil)
	if err != nil {
		return false
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// stop drains the host, and kills it if that takes too long.
func (p *hostProcess) stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may be gone
	select {
	case <-p.gone:
		return nil
	case <-time.After(20 * time.Second):
		return errors.Join(errors.New("the host did not drain in 20 s"), p.cmd.Process.Kill())
	}
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close() //nolint:errcheck // nothing was said on it
	return l.Addr().(*net.TCPAddr).Port, nil
}
