package pgbouncer

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"
)

// ErrNoBinary is returned by Start on a machine without PgBouncer.
var ErrNoBinary = errors.New("no pgbouncer: apt-get install pgbouncer")

// Bouncer is a PgBouncer that may be started and killed any number of times; its
// address stays.
type Bouncer struct {
	server *pgx.ConnConfig
	size   int
	addr   string

	proc  *exec.Cmd
	alive io.Closer // its end ends the pooler
	drain *exec.Cmd // reads the pooler's log to its end
}

// New names a pooler before the server of dsn, whose user is a superuser. size is the
// number of server sessions for each user and database.
func New(dsn string, size int) (*Bouncer, error) {
	server, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, errors.New("pooler: not a Postgres DSN")
	}
	for range 100 { // below the ports that Linux gives to outgoing connections
		addr := net.JoinHostPort("127.0.0.1", fmt.Sprint(15000+rand.IntN(17000)))
		if l, err := net.Listen("tcp", addr); err == nil {
			return &Bouncer{server: server, size: size, addr: addr}, l.Close()
		}
	}
	return nil, errors.New("pooler: no free port between 15000 and 32000")
}

// Through is a DSN of the server by way of the pooler.
func (b *Bouncer) Through(dsn string) (string, error) { return at(dsn, b.addr) }

// Past is a DSN by way of the pooler without it; any other DSN stays as it is.
func (b *Bouncer) Past(dsn string) (string, error) {
	if u, err := url.Parse(dsn); err != nil || u.Host != b.addr {
		return dsn, nil
	}
	return at(dsn, net.JoinHostPort(b.server.Host, fmt.Sprint(b.server.Port)))
}

func at(dsn, addr string) (string, error) {
	u, err := url.Parse(dsn)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return "", errors.New("pooler: the DSN is not a postgres:// URL")
	}
	u.Host = addr
	return u.String(), nil
}

const ini = `[databases]
* = host=%s port=%d
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %s
unix_socket_dir =
auth_type = md5
auth_file = %s
auth_user = %s
pool_mode = transaction
default_pool_size = %d
server_round_robin = 1
max_client_conn = 2000
ignore_startup_parameters = extra_float_digits
`

// watched runs a program until the shell's standard input ends, then kills it and
// removes the folder $0.
const watched = `exec 3<&0 </dev/null
{ read _ <&3; kill -9 $$; rm -rf "$0"; } >/dev/null 2>&1 &
exec "$@" 3<&-`

// Start returns when the pooler takes connections.
func (b *Bouncer) Start() error {
	bin, err := binary()
	if err != nil {
		return err
	}
	dir, err := b.configure()
	if err != nil {
		return fmt.Errorf("pooler: %w", err)
	}
	args := []string{"-c", watched, dir, bin, filepath.Join(dir, "pgbouncer.ini")}
	if os.Getuid() == 0 { // it refuses to run as root
		args = append(args, "-u", "nobody")
	}
	b.proc = exec.Command("sh", args...)
	log, stderr, err := os.Pipe()
	if err != nil {
		return err
	}
	defer log.Close()
	defer stderr.Close()
	b.proc.Stderr = stderr
	if b.alive, err = b.proc.StdinPipe(); err != nil {
		return err
	}
	if err := b.proc.Start(); err != nil {
		return fmt.Errorf("pooler: %w", err)
	}
	_ = stderr.Close()
	if err := ready(log); err != nil {
		b.Kill()
		return err
	}
	b.drain = exec.Command("cat") // not a goroutine, which a test's search for leaks would find
	b.drain.Stdin = log
	return b.drain.Start()
}

// configure writes the pooler's files into a new folder, which its user can read.
func (b *Bouncer) configure() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "pgmill-pooler-*"); err != nil { // not t.TempDir: its user could not get there
		return "", err
	}
	_, port, _ := net.SplitHostPort(b.addr)
	users := filepath.Join(dir, "users")
	return dir, errors.Join(
		os.Chmod(dir, 0o755), //nolint:gosec // as said
		os.WriteFile(users, fmt.Appendf(nil, "%q %q\n", b.server.User, b.server.Password), 0o644), //nolint:gosec // a test's password
		os.WriteFile(filepath.Join(dir, "pgbouncer.ini"),
			fmt.Appendf(nil, ini, b.server.Host, b.server.Port, port, users, b.server.User, b.size), 0o644)) //nolint:gosec // no secret
}

// ready reads the log up to the word that the pooler is up.
func ready(log io.Reader) error {
	var last string
	lines := bufio.NewReader(log)
	for {
		line, err := lines.ReadString('\n')
		if strings.Contains(line, "process up:") {
			return nil
		}
		if err != nil {
			return fmt.Errorf("pooler: it does not start: %s", last)
		}
		last = strings.TrimSpace(line)
	}
}

// Kill ends the pooler at once, with all connections through it.
func (b *Bouncer) Kill() {
	if b.proc == nil {
		return
	}
	_ = b.alive.Close()
	_ = b.proc.Wait()
	if b.drain != nil {
		_ = b.drain.Wait()
	}
	b.proc, b.drain = nil, nil
}

func binary() (string, error) {
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} { // not in everybody's PATH
		if bin, err := exec.LookPath(name); err == nil {
			return bin, nil
		}
	}
	return "", ErrNoBinary
}
