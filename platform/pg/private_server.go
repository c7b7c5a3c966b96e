package pg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// serverTimeout bounds the start of the server, crash recovery included.
const serverTimeout = 60 * time.Second

// server is the postgres process that a keeper runs as its child.
type server struct {
	home    home
	process *os.Process
	logFrom int64         // where in the log this server begins
	exited  chan struct{} // closed once it has ended; then state is set
	state   *os.ProcessState
}

// startServer returns when the server takes connections and database pgmill
// exists. It must be called on a locked OS thread that lives as long as we do.
func startServer(ctx context.Context, h home, spec keeperSpec) (*server, error) {
	ctx, cancel := context.WithTimeout(ctx, serverTimeout)
	defer cancel()
	bin := binaries{dir: spec.Bin}
	if err := h.initdb(ctx, bin); err != nil {
		return nil, err
	}
	if err := h.clearLeftover(ctx); err != nil {
		return nil, err
	}
	port, err := h.takePort(ctx, spec.NewPort)
	if err != nil {
		return nil, err
	}
	var s *server
	err = poll(ctx, 4*keeperPoll, func() (bool, error) {
		if s, err = h.run(bin, port, spec); err != nil {
			return false, err
		}
		err = s.waitReady(ctx)
		if errors.Is(err, errStillInUse) {
			return false, nil
		}
		return err == nil, err
	})
	if err == nil {
		err = h.createDatabase(ctx)
	}
	if err != nil && s != nil {
		err = errors.Join(err, s.stop())
	}
	return s, err
}

// takePort returns the kept port once it is free; mayChange allows another one
// if it is not.
func (h home) takePort(ctx context.Context, mayChange bool) (int, error) {
	port, err := h.port()
	if errors.Is(err, os.ErrNotExist) || err == nil && mayChange && !portFree(port) {
		return h.newPort()
	}
	if err != nil {
		return 0, err
	}
	err = poll(ctx, keeperPoll, func() (bool, error) { return portFree(port), nil })
	if err != nil {
		return 0, fmt.Errorf("port %d, which the users have, is taken: %w", port, err)
	}
	return port, nil
}

func (h home) run(bin binaries, port int, spec keeperSpec) (*server, error) {
	log, err := h.openLog()
	if err != nil {
		return nil, err
	}
	defer log.Close()
	info, err := log.Stat()
	if err != nil {
		return nil, err
	}
	args := []string{"-D", h.path("data")}
	for name, value := range settings(port, spec) {
		args = append(args, "-c", name+"="+value)
	}
	cmd := exec.Command(bin.path("postgres"), args...)
	cmd.Dir = "/"
	cmd.Env = serverEnv()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = serverAttr(h.cred)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	s := &server{home: h, process: cmd.Process, logFrom: info.Size(), exited: make(chan struct{})}
	go func() {
		s.state, _ = cmd.Process.Wait()
		close(s.exited)
	}()
	return s, nil
}

// waitReady waits for the postmaster's own word in line 8 of postmaster.pid.
func (s *server) waitReady(ctx context.Context) error {
	err := poll(ctx, joinPoll, func() (bool, error) {
		select {
		case <-s.exited:
			return false, s.endedWith()
		default:
		}
		text, _ := os.ReadFile(s.home.path("data/postmaster.pid"))
		lines := strings.Split(string(text), "\n")
		return len(lines) > 7 && lines[0] == strconv.Itoa(s.process.Pid) && strings.TrimSpace(lines[7]) == "ready", nil
	})
	if err != nil && errors.Is(err, ctx.Err()) {
		err = fmt.Errorf("postgres is not ready: %w; the end of its log:\n%s", err, s.home.logTail(s.logFrom))
	}
	return err
}

// errStillInUse: backends of a postmaster that was killed are not gone yet.
var errStillInUse = errors.New("the data is still in use")

// endedWith says how an exited server ended, with the end of its log.
func (s *server) endedWith() error {
	tail := s.home.logTail(s.logFrom)
	err := fmt.Errorf("postgres: %s; the end of its log:\n%s", s.state, tail)
	if strings.Contains(tail, "pre-existing shared memory block") {
		return fmt.Errorf("%w: %w", errStillInUse, err)
	}
	return err
}

// stop ends the server and its sessions: with a checkpoint, or after a long
// wait without one.
func (s *server) stop() error {
	for _, how := range []struct {
		signal  os.Signal
		patient time.Duration
	}{{syscall.SIGINT, 30 * time.Second}, {syscall.SIGQUIT, 10 * time.Second}, {syscall.SIGKILL, 10 * time.Second}} {
		if err := s.process.Signal(how.signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("stop postgres: %w", err)
		}
		timer := time.NewTimer(how.patient)
		select {
		case <-s.exited:
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
	return errors.New("postgres does not stop")
}

// createDatabase makes database pgmill at the first start.
func (h home) createDatabase(ctx context.Context) error {
	dsn, err := h.dsn("postgres")
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var exists bool
	err = conn.QueryRow(ctx, `select exists (select from pg_database where datname = 'pgmill')`).Scan(&exists)
	if err == nil && !exists {
		_, err = conn.Exec(ctx, `create database pgmill`)
	}
	return err
}
