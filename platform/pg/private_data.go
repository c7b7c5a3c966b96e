package pg

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// initdb makes the data directory once. It appears under its name when it is
// complete, so a keeper that is killed here leaves nothing half-made.
func (h home) initdb(ctx context.Context, bin binaries) error {
	if major, err := h.dataMajor(); major != 0 || err != nil {
		return err
	}
	// A new name each time: an initdb whose keeper was killed may still be
	// removing its own.
	halves, _ := filepath.Glob(h.path("data.new-*"))
	for _, half := range halves {
		_ = os.RemoveAll(half)
	}
	fresh, err := os.MkdirTemp(h.dir, "data.new-*")
	if err != nil {
		return err
	}
	// The server's user reads the password once, from a file of its own.
	password, pwfile := rand.Text(), h.path("password.initdb")
	defer os.Remove(pwfile)
	if err := os.WriteFile(pwfile, []byte(password), 0o600); err != nil {
		return err
	}
	if h.cred != nil {
		for _, path := range []string{fresh, pwfile} {
			if err := os.Chown(path, int(h.cred.Uid), int(h.cred.Gid)); err != nil {
				return err
			}
		}
	}
	args := []string{"-D", fresh, "-U", "pgmill", "-A", "scram-sha-256", "--pwfile=" + pwfile, "-E", "UTF8", "--no-locale",
		"--no-sync"} // seconds of the first impression, against a power cut in the first half minute
	cmd := exec.CommandContext(ctx, bin.path("initdb"), args...)
	cmd.Dir = "/"
	cmd.Env = serverEnv()
	cmd.SysProcAttr = serverAttr(h.cred)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, lastLines(string(out)))
	}
	if err := writeFile(h.path("password"), password); err != nil {
		return err
	}
	return os.Rename(fresh, h.path("data"))
}

// clearLeftover deals with the postmaster.pid of an earlier server. One that
// still runs lost its keeper: it is stopped. If the pid now belongs to some
// other process, Postgres would refuse to start: the file is removed. (The
// shared memory block, keyed by the data directory, still keeps two servers
// apart.) A pid that is gone Postgres deals with by itself.
func (h home) clearLeftover(ctx context.Context) error {
	path := h.path("data/postmaster.pid")
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || pid <= 1 {
		return os.Remove(path) // cut short by a full disk or a crash
	}
	if !alive(pid) {
		return nil
	}
	if !h.isPostmaster(pid) {
		return os.Remove(path)
	}
	asked := time.Now()
	_ = syscall.Kill(pid, syscall.SIGINT)
	err = poll(ctx, joinPoll, func() (bool, error) {
		if time.Since(asked) > serverTimeout/2 {
			_ = syscall.Kill(pid, syscall.SIGQUIT)
		}
		return !h.isPostmaster(pid), nil
	})
	if err != nil {
		return fmt.Errorf("the server of an earlier keeper, pid %d, does not stop: %w", pid, err)
	}
	return nil
}

func alive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

// isPostmaster reports whether the process is a postgres on our data.
func (h home) isPostmaster(pid int) bool {
	args := arguments(pid)
	return strings.Contains(args, "postgres") && strings.Contains(args, h.path("data"))
}

// openLog opens the server's log to append; one that has grown large becomes
// log.old first.
func (h home) openLog() (*os.File, error) {
	path := h.path("log")
	if info, err := os.Stat(path); err == nil && info.Size() > 8<<20 {
		_ = os.Rename(path, path+".old")
	}
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

// logTail is the end of the log since from, without the password.
func (h home) logTail(from int64) string {
	text, err := os.ReadFile(h.path("log"))
	if err != nil || int64(len(text)) < from {
		return ""
	}
	tail := lastLines(string(text[from:]))
	if password, err := os.ReadFile(h.path("password")); err == nil && len(password) > 0 {
		tail = strings.ReplaceAll(tail, string(password), "***")
	}
	return tail
}

func lastLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}
