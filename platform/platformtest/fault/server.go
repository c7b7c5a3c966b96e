package fault

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pgmill/pgmill/platform/pg"
)

// Server is a Postgres of the test's own.
type Server struct {
	// DSN is a superuser on an empty database; it stays valid over restarts.
	DSN string

	t       testing.TB
	options pg.PrivateOptions
	private *pg.Private
	paused  []int
}

func init() {
	pg.KeeperMain() // this test binary may be asked to be the server's keeper
}

// NewServer starts a server, which ends with the test. What a client was told is
// committed survives Kill. The test is skipped if the machine has no PostgreSQL.
func NewServer(t testing.TB, settings map[string]string) *Server {
	t.Helper()
	dir, err := os.MkdirTemp("", "pgmill-fault-*") // not t.TempDir: the server's user could not get there
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{"synchronous_commit": "on", "shared_buffers": "32MB", "max_connections": "150"}
	maps.Copy(all, settings)
	s := &Server{t: t, options: pg.PrivateOptions{Dir: dir, Fast: true, Settings: all, Linger: 50 * time.Millisecond, Log: slog.New(slog.DiscardHandler)}}
	t.Cleanup(func() {
		s.Resume()
		s.Stop()
		if err := os.RemoveAll(dir); err != nil {
			t.Log(err)
		}
	})
	s.Start()
	return s
}

// Start starts the server, or starts it again after Stop.
func (s *Server) Start() {
	s.t.Helper()
	private, err := pg.StartPrivate(context.WithoutCancel(s.t.Context()), s.options)
	if errors.Is(err, pg.ErrNoBinaries) {
		s.t.Skipf("this test needs a Postgres of its own: %v", err)
	}
	if err != nil {
		s.t.Fatalf("server: %v", err)
	}
	s.private, s.DSN = private, private.DSN()
}

// Stop stops the server as an operator would, and returns when it is gone.
func (s *Server) Stop() {
	s.t.Helper()
	if s.private == nil {
		return
	}
	_ = s.private.Close()
	s.private = nil
	s.until("the server stops", func() bool {
		_, err := os.Stat(filepath.Join(s.options.Dir, "data", "postmaster.pid"))
		return errors.Is(err, fs.ErrNotExist)
	})
}

// Kill ends the server at once, with no checkpoint and no word to anybody; it is
// started again by itself, and recovers, within a second or two.
func (s *Server) Kill() {
	s.t.Helper()
	s.signal(s.postmaster(), syscall.SIGQUIT)
}

// Pause stops the server's processes where they are. Connections stay, and new ones
// are taken by the kernel; nothing is answered.
func (s *Server) Pause() {
	s.t.Helper()
	main := s.postmaster()
	s.signal(main, syscall.SIGSTOP) // first, so that no child is missed
	s.paused = append([]int{main}, children(main)...)
	for _, pid := range s.paused[1:] {
		s.signal(pid, syscall.SIGSTOP)
	}
}

// Resume lets a paused server go on.
func (s *Server) Resume() {
	for _, pid := range s.paused {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
	s.paused = nil
}

// Log is what the server has said; with the setting log_line_prefix %e each line begins
// with its SQLSTATE.
func (s *Server) Log() string {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.options.Dir, "log"))
	if err != nil {
		s.t.Fatalf("server: %v", err)
	}
	return string(text)
}

func (s *Server) postmaster() int {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.options.Dir, "data", "postmaster.pid"))
	if err != nil {
		s.t.Fatalf("server: %v", err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil || pid <= 1 {
		s.t.Fatalf("server: postmaster.pid begins %q", first)
	}
	return pid
}

func (s *Server) signal(pid int, sig syscall.Signal) {
	s.t.Helper()
	if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		s.t.Fatalf("server: signal %v: %v", sig, err)
	}
}

func (s *Server) until(what string, done func() bool) {
	s.t.Helper()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for deadline := time.Now().Add(20 * time.Second); !done(); <-look.C {
		if time.Now().After(deadline) {
			s.t.Errorf("server: waited 20 s until %s", what)
			return
		}
	}
}

// children are the processes that a process has started, from /proc.
func children(of int) []int {
	var pids []int
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		var pid, parent int
		var state string
		_, rest, ok := strings.Cut(string(text), ") ") // the name may hold anything
		if _, err := fmt.Sscanf(rest, "%s %d", &state, &parent); !ok || err != nil || parent != of {
			continue
		}
		if pid, err = strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
