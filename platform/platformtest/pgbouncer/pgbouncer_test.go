package pgbouncer

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"
)

// addrEnv makes this binary a process that starts a pooler, says where and waits.
const addrEnv = "PGBOUNCER_TEST_STARTER"

func TestMain(m *testing.M) {
	if os.Getenv(addrEnv) == "" {
		os.Exit(m.Run())
	}
	b, err := New(nowhere, 1)
	if err == nil {
		err = b.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(b.addr)
	select {}
}

// nowhere is a server that a pooler does not look for before somebody asks.
const nowhere = "postgres://ann:secret@127.0.0.1:1/d"

func start(t *testing.T) *Bouncer {
	t.Helper()
	b, err := New(nowhere, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Start(); errors.Is(err, ErrNoBinary) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Kill)
	return b
}

func TestPoolerTakesConnectionsOnceStartedAndEndsThemWhenKilled(t *testing.T) {
	t.Parallel()
	b := start(t)
	for range 2 {
		conn, err := net.Dial("tcp", b.addr)
		if err != nil {
			t.Fatalf("started, and does not answer: %v", err)
		}
		b.Kill()
		ended(t, conn)
		if conn, err := net.Dial("tcp", b.addr); err == nil {
			_ = conn.Close()
			t.Fatal("killed, and still answers")
		}
		if err := b.Start(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPoolerThatCannotStartSaysWhy(t *testing.T) {
	t.Parallel()
	b := start(t)
	if err := (&Bouncer{server: b.server, size: 1, addr: b.addr}).Start(); err == nil {
		t.Error("a second pooler took the first one's port")
	}
}

func TestPoolerEndsWithTheProcessThatStartedIt(t *testing.T) {
	t.Parallel()
	start(t) // skips where there is none
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), addrEnv+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var addr string
	_, err = fmt.Fscanln(bufio.NewReader(out), &addr)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	ended(t, conn)
}

// ended returns when the other side has closed the connection.
func ended(t *testing.T, conn net.Conn) {
	t.Helper()
	defer conn.Close()
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("read %d bytes of a pooler that is asked for nothing", n)
	}
}

func TestPastIsTheServerAndOtherDSNsStay(t *testing.T) {
	t.Parallel()
	b, err := New(nowhere, 1)
	if err != nil {
		t.Fatal(err)
	}
	through, err := b.Through("postgres://bob:pass@127.0.0.1:1/other?sslmode=disable")
	if want := "postgres://bob:pass@" + b.addr + "/other?sslmode=disable"; through != want || err != nil {
		t.Errorf("Through = %s, %v; want %s", through, err, want)
	}
	for dsn, want := range map[string]string{
		through:                     "postgres://bob:pass@127.0.0.1:1/other?sslmode=disable",
		"postgres://u:p@db:5432/x":  "postgres://u:p@db:5432/x",
		"host=127.0.0.1 dbname=any": "host=127.0.0.1 dbname=any",
	} {
		if got, err := b.Past(dsn); got != want || err != nil {
			t.Errorf("Past(%s) = %s, %v; want %s", dsn, got, err, want)
		}
	}
}
