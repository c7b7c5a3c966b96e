package pg

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// actorEnv makes the test binary a process that uses a private Postgres: it
// prints the DSN, or the error, and holds on until its standard input ends.
const actorEnv = "PGMILL_TEST_ACTOR"

func init() {
	KeeperMain()
	if text := os.Getenv(actorEnv); text != "" {
		os.Exit(actor(text))
	}
}

func actor(text string) int {
	var o PrivateOptions
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		fmt.Println("error", err)
		return 2
	}
	p, err := StartPrivate(context.Background(), o)
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	fmt.Println(p.DSN())
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = p.Close()
	return 0
}

// testUser is one process that uses the server in home.
type testUser struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.Closer
	said  *bufio.Reader
}

// testHome is a directory for a private Postgres, and who uses it.
type testHome struct {
	home
	as *syscall.Credential // nil: ourselves
}

func newHome(t *testing.T, as *syscall.Credential) testHome {
	t.Helper()
	if _, err := findBinaries(binaryFolders(), 0); err != nil {
		t.Skipf("this test needs a Postgres of its own: %v", err)
	}
	// Not t.TempDir: the server's user could not get there.
	dir, err := os.MkdirTemp("", "pgmill-private-test-*")
	if err != nil {
		t.Fatal(err)
	}
	if as != nil {
		if err := os.Chown(dir, int(as.Uid), int(as.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	h := testHome{home: home{dir: dir}, as: as}
	t.Cleanup(func() {
		h.eventually(t, "the server stops", func() bool { return !h.running() })
		if t.Failed() {
			log, _ := os.ReadFile(h.path("log"))
			t.Logf("log:\n%s", log)
		}
		_ = os.RemoveAll(dir)
	})
	return h
}

func (h testHome) options() PrivateOptions {
	return PrivateOptions{
		Dir: h.dir, Fast: true, Linger: 200 * time.Millisecond,
		Settings: map[string]string{"shared_buffers": "16MB"},
		Preload:  []string{"no_such_library"},
	}
}

// start starts a user without waiting for its answer; it is killed at the end.
func (h testHome) start(t *testing.T) *testUser {
	t.Helper()
	text, err := json.Marshal(h.options())
	if err != nil {
		t.Fatal(err)
	}
	exe, err := executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), actorEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: h.as}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	u := &testUser{t: t, cmd: cmd, stdin: stdin, said: bufio.NewReader(stdout)}
	t.Cleanup(u.kill)
	return u
}

// line is the one that the user has printed: a DSN or an error.
func (u *testUser) line() string {
	u.t.Helper()
	line, err := u.said.ReadString('\n')
	if err != nil {
		u.t.Fatalf("user said %q: %v", line, err)
	}
	return strings.TrimSpace(line)
}

// use starts a user and returns it with its DSN.
func (h testHome) use(t *testing.T) (*testUser, string) {
	t.Helper()
	u := h.start(t)
	dsn := u.line()
	if !strings.HasPrefix(dsn, "postgres://") {
		t.Fatalf("StartPrivate: %s", dsn)
	}
	return u, dsn
}

func (u *testUser) kill() {
	_ = u.cmd.Process.Kill()
	_ = u.cmd.Wait()
}

// leave ends the user in order.
func (u *testUser) leave() {
	_ = u.stdin.Close()
	if err := u.cmd.Wait(); err != nil {
		u.t.Errorf("user: %v", err)
	}
}

// number is the first line of a file of the home, 0 without one.
func (h testHome) number(file string) int {
	text, _ := os.ReadFile(h.path(file))
	line, _, _ := strings.Cut(string(text), "\n")
	n, _ := strconv.Atoi(line)
	return n
}

func (h testHome) postmaster() int { return h.number("data/postmaster.pid") }

// writeAsServer replaces a file of the data directory.
func (h testHome) writeAsServer(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(h.path(file), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if server, err := serverUser(); err != nil {
		t.Fatal(err)
	} else if server != nil {
		if err := os.Chown(h.path(file), int(server.Uid), int(server.Gid)); err != nil {
			t.Fatal(err)
		}
	}
}

// running reports whether a keeper or a server of this home is alive.
func (h testHome) running() bool {
	if pid := h.postmaster(); pid > 1 && h.isPostmaster(pid) {
		return true
	}
	lock, err := os.Open(h.path(keeperLock))
	if err != nil {
		return false
	}
	defer lock.Close()
	free, err := tryLock(lock, shared)
	return err == nil && !free
}

// eventually fails the test unless ok comes true in time.
func (h testHome) eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	if err := poll(ctx, 10*time.Millisecond, func() (bool, error) { return ok(), nil }); err != nil {
		t.Fatalf("%s: not in time", what)
	}
}

// answer is what a new session says to a statement that returns one text.
func answer(dsn, sql string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	var text string
	err = conn.QueryRow(ctx, sql).Scan(&text)
	return text, err
}

func mustAnswer(t *testing.T, dsn, sql, want string) {
	t.Helper()
	if got, err := answer(dsn, sql); got != want || err != nil {
		t.Fatalf("%s = %q, %v; want %q", sql, got, err, want)
	}
}
