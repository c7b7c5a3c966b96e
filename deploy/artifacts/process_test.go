package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/pgmill/pgmill/functions/connectors" // as cmd/host
	"github.com/pgmill/pgmill/functions/demo"
	_ "github.com/pgmill/pgmill/functions/posture"
	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/platformtest"
)

// container runs the image's program as an engine does: in a root of its own, as its
// user, as PID 1 of its own PIDs. It does without networks and cgroups.
type container struct {
	*exec.Cmd
	t     *testing.T
	ended chan error
	mu    sync.Mutex
	out   bytes.Buffer
}

func (c *container) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.Write(p)
}

func (c *container) said() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.String()
}

// run starts the image with these arguments, the image's own environment and env.
func run(t *testing.T, args, env []string) *container {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may give a program a root and PIDs of its own: run as root")
	}
	image := theImage(t)
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.MkdirTemp("", "pgmill-root-*") // t.TempDir is closed to the image's user
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	if err := errors.Join(os.Chmod(root, 0o755), unpack(image, root)); err != nil {
		t.Fatal(err)
	}
	if args == nil {
		args = config.Config.Cmd
	}
	c := &container{t: t, Cmd: exec.Command(config.Config.Entrypoint[0], args...), ended: make(chan error, 1)}
	c.Env, c.Dir, c.Stdout, c.Stderr = append(config.Config.Env, env...), config.Config.WorkingDir, c, c
	var uid, gid uint32
	if _, err := fmt.Sscanf(config.Config.User, "%d:%d", &uid, &gid); err != nil {
		t.Fatal(err)
	}
	c.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS,
		Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	if err := c.Start(); errors.Is(err, syscall.EPERM) {
		t.Skipf("this machine gives no PIDs of their own: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	go func() { c.ended <- c.Wait() }()
	t.Cleanup(func() { _ = c.Process.Kill() })
	return c
}

// exits waits for the end and its code; -1 is a signal's.
func (c *container) exits(want int) {
	c.t.Helper()
	select {
	case <-c.ended:
		if got := c.ProcessState.ExitCode(); got != want {
			c.t.Errorf("exit code %d, want %d: %s", got, want, c.said())
		}
	case <-time.After(time.Minute):
		c.t.Fatalf("it runs still: %s", c.said())
	}
}

func (c *container) signal(s os.Signal) {
	c.t.Helper()
	if err := c.Process.Signal(s); err != nil {
		c.t.Fatal(err)
	}
}

// becomes asks until the answer has this code; "" is no answer.
func (c *container) becomes(url, status string) {
	c.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) { // another process: nothing to wait on
		got := ""
		if res, err := http.Get(url); err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
			got = res.Status[:3]
		}
		if got == status {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("%s answers %q, want %q: %s", url, got, status, c.said())
		}
	}
}

// free is an address that nobody listens at now.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// F46: what an engine starts is PID 1, works, and drains when it is told to stop.
func TestImageServesAndDrainsAsPID1(t *testing.T) {
	t.Parallel()
	dsn, addr := platformtest.DSN(t, platform.Default.Modules()...), free(t)
	db := platformtest.Pool(t, dsn)
	c := run(t, nil, []string{"DATABASE_URL=" + dsn, "PGMILL_ADDR=" + addr})
	c.becomes("http://"+addr+"/readyz", "200")
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.Process.Pid))
	if err != nil || !strings.Contains(string(status), fmt.Sprintf("NSpid:\t%d\t1\n", c.Process.Pid)) || !strings.Contains(string(status), "Uid:\t65532\t65532") {
		t.Errorf("it is not PID 1 of user 65532: %v\n%s", err, status)
	}
	c.signal(syscall.SIGTERM)
	c.exits(0)
	platformtest.WaitFor(t, db, "select not exists (select from mill.instances where live)")
}

// A second signal does not wait for a handler that holds the first one up.
func TestImageStopsAtOnceAtASecondSignal(t *testing.T) {
	t.Parallel()
	dsn, addr := platformtest.DSN(t, platform.Default.Modules()...), free(t)
	db := platformtest.Pool(t, dsn)
	if _, err := db.Exec(t.Context(), "create schema demo; create table demo.branch_balance (bid int primary key, balance bigint not null)"); err != nil {
		t.Fatal(err)
	}
	c := run(t, nil, []string{"DATABASE_URL=" + dsn, "PGMILL_ADDR=" + addr, "PGMILL_GRACE=1h"})
	c.becomes("http://"+addr+"/readyz", "200")
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck // nothing is lost
	if _, err := tx.Exec(t.Context(), "lock table demo.branch_balance"); err != nil {
		t.Fatal(err)
	}
	platformtest.Emit(t, db, platform.NewEvent{Type: demo.Transferred, Target: "branch/1", Data: demo.Transfer{Teller: 1, Account: 1, Delta: 1}})
	platformtest.WaitFor(t, db, "select exists (select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database())")
	c.signal(syscall.SIGTERM)
	c.becomes("http://"+addr+"/readyz", "503")
	c.signal(syscall.SIGTERM)
	c.exits(130)
}

// Without a database it says what to set, on either profile.
func TestImageWithoutADatabaseSaysWhatToDo(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		profile string
		code    int
		said    string
	}{
		{"single-db-pilot", 2, "set DATABASE_URL, or DATABASE_URL_FILE"},
		{"local", 3, "use a server that runs already (DATABASE_URL)"},
	} {
		c := run(t, nil, []string{"PGMILL_PROFILE=" + tt.profile, "PGMILL_ADDR=127.0.0.1:0"})
		c.exits(tt.code)
		if !strings.Contains(c.said(), tt.said) {
			t.Errorf("profile %s says %s", tt.profile, c.said())
		}
	}
}
