package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pgmill/pgmill/platform/pg"
)

var shell = regexp.MustCompile("(?s)\n```sh\n(.*?)\n```\n")

// Every command that the pages show in a block of sh is run as it is written, on a
// private Postgres with a host, in the order of the pages.
func TestDocumentedCommands(t *testing.T) {
	if _, _, err := pg.Binaries(""); err != nil {
		t.Skip(err)
	}
	if _, err := exec.LookPath("psql"); err != nil {
		t.Skip("psql is not here: apt-get install postgresql-client")
	}
	dir, err := os.MkdirTemp("", "pgmill-docs-*") // not t.TempDir: the server's user must get there
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "host")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	env := append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "PGMILL_ADDR="+addr, "PGMILL_URL=http://"+addr)
	command := func(env []string, name string, args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		c := exec.CommandContext(ctx, name, args...)
		c.Env, c.Dir = env, "../.."
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a block that fails leaves nothing in the background
		kill := func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
		c.Cancel, c.WaitDelay = kill, 10*time.Second
		out, err := c.CombinedOutput()
		if c.Process != nil {
			_ = kill()
		}
		return string(out), err
	}

	host := exec.Command(program, "serve")
	host.Env = append(env, "DATABASE_URL=", "PGMILL_DATA_DIR="+filepath.Join(dir, "data"))
	var said bytes.Buffer
	host.Stdout, host.Stderr = &said, &said
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = host.Process.Signal(os.Interrupt)
		_ = host.Wait()
		if t.Failed() {
			t.Logf("the host said\n%s", &said)
		}
	}()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) { // another process: nothing to wait on
		out, err := command(env, program, "ready")
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(out)
		}
	}
	url, err := command(host.Env, program, "url")
	if err != nil {
		t.Fatal(url)
	}
	env = append(env, "DATABASE_URL="+strings.TrimSpace(url))
	for _, page := range []string{"README.md", "deploy/README.md"} {
		text, err := os.ReadFile(filepath.Join("../..", page))
		if err != nil {
			t.Fatal(err)
		}
		blocks := shell.FindAllStringSubmatch(string(text), -1)
		if len(blocks) == 0 {
			t.Errorf("%s shows no command", page)
		}
		for _, b := range blocks {
			if _, err := exec.LookPath("python3"); err != nil && strings.Contains(b[1], "python3 ") {
				t.Logf("%s: not run, no python3 here: apt-get install python3\n%s", page, b[1])
				continue
			}
			if out, err := command(env, "sh", "-eu", "-c", b[1]); err != nil {
				t.Errorf("%s: %v\n%s\n%s", page, err, b[1], out)
			}
		}
	}
}
