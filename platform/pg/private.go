package pg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// startTimeout bounds one StartPrivate: initdb, crash recovery and the wait
// for a server that is just stopping included.
const startTimeout = 90 * time.Second

// PrivateOptions says where a private Postgres lives and how it is set up. The
// zero value is a durable server for development in the current directory.
type PrivateOptions struct {
	// Dir holds the data, the password, the port, the log and the locks.
	// Empty: .pgmill in the current directory or, when root and the
	// unprivileged server could not get there, a folder of /var/lib/pgmill
	// named by a hash of the current directory.
	Dir string
	// Fast gives up durability for speed: for tests only.
	Fast bool
	// Settings are server settings added to and replacing the defaults. They
	// count for whoever starts the server; who joins takes it as it is.
	Settings map[string]string
	// Preload are libraries to load at the start if the machine has them;
	// Settings' shared_preload_libraries, if set, counts instead.
	Preload []string
	// Linger is how long the server outlives its last user. 0: one second.
	Linger time.Duration
	// Log gets a line when the server has to be restarted. nil: slog.Default().
	Log *slog.Logger
}

// Private is this process's use of a private Postgres. The server ends when the
// last process that uses it has called Close or is gone, whichever way it went.
type Private struct {
	opts  PrivateOptions
	home  home
	dsn   string
	users *os.File // shared lock: the kernel gives it back however we end
	child int      // pid of the keeper that this process started last, 0: none
	began bool     // the server did not run before

	closing context.CancelFunc
	watched chan struct{} // closed when watch has returned
	close   sync.Once
}

// StartPrivate starts the Postgres in o.Dir, or joins it if other processes use
// it already. The program must call KeeperMain before anything else. Without
// server binaries on the machine the error is ErrNoBinaries.
func StartPrivate(ctx context.Context, o PrivateOptions) (*Private, error) {
	if !keeperMain.Load() {
		return nil, errors.New("private Postgres: main does not start with pg.KeeperMain()")
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Linger == 0 {
		o.Linger = time.Second
	}
	if err := checkSettings(o.Settings); err != nil {
		return nil, err
	}
	home, err := openHome(o.Dir)
	if err != nil {
		if _, _, none := Binaries(""); none != nil {
			err = none // a place to write to would not help
		}
		return nil, fmt.Errorf("private Postgres: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	p := &Private{opts: o, home: home, watched: make(chan struct{})}
	alone, err := p.enter(ctx)
	if err != nil {
		return nil, fmt.Errorf("private Postgres in %s: %w", home.dir, err)
	}
	if err := p.join(ctx, alone); err != nil {
		p.leave()
		return nil, fmt.Errorf("private Postgres in %s: %w", home.dir, err)
	}
	p.began = p.child != 0
	watching, closing := context.WithCancel(context.WithoutCancel(ctx))
	p.closing = closing
	go p.watch(watching)
	return p, nil
}

// DSN is a postgres:// URL with the password, of a superuser on database
// pgmill. It stays valid when the server is restarted.
func (p *Private) DSN() string { return p.dsn }

// Dir is where the server's files are.
func (p *Private) Dir() string { return p.home.dir }

// Started reports whether this process started the server: it did not run before.
func (p *Private) Started() bool { return p.began }

// Close ends this process's use of the server. It does not wait for the server
// to stop, and may be called more than once.
func (p *Private) Close() error {
	p.close.Do(func() {
		p.closing()
		<-p.watched
		p.leave()
	})
	return nil
}

// enter takes the lock that makes this process a user. It waits while a keeper
// that has seen no users is stopping the server. alone reports that nobody else
// can hold a DSN, so that the port may still be changed.
func (p *Private) enter(ctx context.Context) (alone bool, err error) {
	p.users, err = p.home.openLock(usersLock)
	if err != nil {
		return false, err
	}
	if alone, err = tryLock(p.users, exclusive); err != nil {
		return false, err
	}
	// From exclusive to shared is not atomic: a keeper may come in between, and
	// then we wait for it like everybody else.
	err = poll(ctx, joinPoll, func() (bool, error) { return tryLock(p.users, shared) })
	if err != nil {
		_ = p.users.Close()
		return false, fmt.Errorf("wait for the server to stop: %w", err)
	}
	return alone, nil
}

// join returns once the server answers, started by this process if need be.
func (p *Private) join(ctx context.Context, alone bool) error {
	var last error
	killed := 0
	err := poll(ctx, joinPoll, func() (bool, error) {
		err := p.ensureKeeper(ctx, alone)
		if errors.Is(err, errKeeperKilled) && killed < 3 {
			killed, last = killed+1, err
			return false, nil
		}
		if err != nil {
			return false, err
		}
		p.dsn, last = p.home.dsn("pgmill")
		if last == nil {
			last = ping(ctx, p.dsn)
		}
		return last == nil, nil
	})
	if err != nil && errors.Is(err, ctx.Err()) && last != nil {
		return fmt.Errorf("%w: %w", err, last)
	}
	return err
}

func (p *Private) leave() {
	_ = p.users.Close()
	if p.child != 0 {
		go reap(p.child, true)
	}
}

func ping(ctx context.Context, dsn string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}
