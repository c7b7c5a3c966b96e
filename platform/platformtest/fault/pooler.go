package fault

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Pooler is a PgBouncer in transaction mode in front of one database.
type Pooler struct {
	DSN string // the database through the pooler

	t    testing.TB
	file string
	addr string
	proc *exec.Cmd
}

// NewPooler starts a pooler, which ends with the test. The test is skipped if the
// machine has no PgBouncer.
func NewPooler(t testing.TB, dsn string) *Pooler {
	t.Helper()
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "pgmill-pooler-*") // not t.TempDir: the pooler's user could not get there
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	_, port, _ := net.SplitHostPort(addr)
	ini := fmt.Sprintf(`[databases]
%s = host=%s port=%d dbname=%s user=%s password='%s'
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %s
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 4
server_round_robin = 1
max_client_conn = 200
ignore_startup_parameters = extra_float_digits,options,search_path
`, cfg.Database, cfg.Host, cfg.Port, cfg.Database, cfg.User, cfg.Password, port)
	p := &Pooler{t: t, file: filepath.Join(dir, "pgbouncer.ini"), addr: addr}
	if err := os.WriteFile(p.file, []byte(ini), 0o644); err != nil { //nolint:gosec // a test's password
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // the pooler's user reads it
		t.Fatal(err)
	}
	u := url.URL{Scheme: "postgres", User: url.UserPassword(cfg.User, cfg.Password), Host: addr, Path: "/" + cfg.Database, RawQuery: "sslmode=disable"}
	p.DSN = u.String()
	p.Start()
	t.Cleanup(p.Kill)
	return p
}

// Start starts the pooler, or starts it again after Kill.
func (p *Pooler) Start() {
	p.t.Helper()
	bin, err := exec.LookPath("pgbouncer")
	if err != nil {
		bin = "/usr/sbin/pgbouncer"
	}
	if _, err := os.Stat(bin); err != nil {
		p.t.Skip("this test needs PgBouncer: apt-get install pgbouncer")
	}
	args := []string{p.file}
	if os.Getuid() == 0 { // it refuses to run as root
		args = append(args, "-u", "nobody")
	}
	p.proc = exec.CommandContext(context.WithoutCancel(p.t.Context()), bin, args...)
	if err := p.proc.Start(); err != nil {
		p.t.Fatalf("pooler: %v", err)
	}
	for range 500 {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(p.t.Context(), "tcp", p.addr)
		if err == nil {
			_ = conn.Close()
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	p.t.Fatal("pooler: it does not answer")
}

// Kill ends the pooler at once, with all connections through it.
func (p *Pooler) Kill() {
	if p.proc == nil {
		return
	}
	_ = p.proc.Process.Kill()
	_ = p.proc.Wait()
	p.proc = nil
}
