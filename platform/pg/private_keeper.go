package pg

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
)

// keeperMain is set once KeeperMain was called: without it, a keeper would run
// the program a second time.
var keeperMain atomic.Bool

// KeeperMain must be the first call of a main (or of a test binary's init) that
// uses StartPrivate. It does nothing, unless this process was started to be the
// keeper of a private Postgres: then it runs that and exits.
//
// The keeper is a process of its own, in its own session, so that the server
// survives whoever happened to start it. It stops the server when there is no
// user left. If the keeper itself is killed, the server stops (on Linux: by
// itself; elsewhere: when the next keeper comes) and a user starts both again.
func KeeperMain() {
	keeperMain.Store(true)
	text := os.Getenv(keeperEnv)
	if text == "" {
		return
	}
	// The server is told when the thread that started it ends.
	runtime.LockOSThread()
	syscall.CloseOnExec(keeperLockFD)
	syscall.CloseOnExec(reportFD)
	lock, report := os.NewFile(keeperLockFD, keeperLock), os.NewFile(reportFD, "report")
	if err := keep(text, lock, report); err != nil {
		fmt.Fprintln(os.Stderr, "pgmill-keeper:", err) // the log
		_, _ = io.WriteString(report, err.Error())     // lost if the server was ready before
		os.Exit(1)
	}
	os.Exit(0)
}

func keep(text string, lock, report *os.File) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	var spec keeperSpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return fmt.Errorf("%s: %w", keeperEnv, err)
	}
	if held, err := tryLock(lock, exclusive); !held || err != nil {
		return errors.Join(fmt.Errorf("not started by StartPrivate: descriptor %d is not the lock", keeperLockFD), err)
	}
	_ = lock.Truncate(0) // the pid is for people: nothing here reads it
	if _, err := lock.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0); err != nil {
		return err
	}
	home, err := openHome(spec.Dir)
	if err != nil {
		return err
	}
	users, err := home.openLock(usersLock)
	if err != nil {
		return err
	}
	srv, err := startServer(ctx, home, spec)
	if err != nil {
		return err
	}
	_, err = io.WriteString(report, reportReady)
	_ = report.Close()
	if err == nil || errors.Is(err, syscall.EPIPE) { // our starter may be gone, and others here
		err = srv.waitUnused(ctx, users, lock, spec.Linger)
	}
	err = errors.Join(err, srv.stop())
	// users is locked now, unless we were told to end: both files stay open to
	// the end of the process, so nobody comes in until the server is gone.
	runtime.KeepAlive(users)
	runtime.KeepAlive(lock)
	return err
}

// waitUnused returns nil with users locked when nobody has used the server for
// linger, or when ctx ends or the directory is gone; an error if the server
// ended by itself.
func (s *server) waitUnused(ctx context.Context, users, lock *os.File, linger time.Duration) error {
	tick := time.NewTicker(keeperPoll)
	defer tick.Stop()
	var since time.Time // when the lock was first seen free, zero while it is not
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.exited:
			return fmt.Errorf("the server ended: %w", s.endedWith())
		case <-tick.C:
		}
		if !sameFile(lock, s.home.path(keeperLock)) {
			return nil
		}
		free, err := tryLock(users, exclusive)
		switch {
		case err != nil:
			return err
		case !free:
			since = time.Time{}
			continue
		case since.IsZero():
			since = time.Now()
		}
		if time.Since(since) >= linger {
			return nil
		}
		if _, err := tryLock(users, none); err != nil {
			return err
		}
	}
}
