package pg

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"
)

// Two flocks hold the whole protocol. Every user process holds usersLock
// shared; the keeper holds keeperLock exclusively for as long as it lives, and
// takes usersLock exclusively, for good, before it stops the server. So
//
//   - a server with a user is never stopped: the keeper cannot get usersLock;
//   - who joins while the server is stopping waits for usersLock, and starts a
//     new one after;
//   - there is one keeper: who starts one takes keeperLock first and hands the
//     locked file down to it;
//   - a keeper that was killed is noticed by every user: keeperLock is free.
const (
	usersLock  = "users.lock"
	keeperLock = "keeper.lock"
)

const (
	joinPoll   = 25 * time.Millisecond  // a person or a test waits for it
	keeperPoll = 100 * time.Millisecond // is anybody still there?
	watchPoll  = 200 * time.Millisecond // is the keeper still there?
)

type lockKind int

const (
	shared    lockKind = syscall.LOCK_SH
	exclusive lockKind = syscall.LOCK_EX
	none      lockKind = syscall.LOCK_UN
)

// tryLock takes or changes f's flock without waiting; false means that another
// process is in the way, and that a lock held before may be lost.
func tryLock(f *os.File, kind lockKind) (bool, error) {
	for {
		err := syscall.Flock(int(f.Fd()), int(kind)|syscall.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, syscall.EINTR):
			return false, &os.PathError{Op: "flock", Path: f.Name(), Err: err}
		}
	}
}

// openLock opens, or makes, one of the home's lock files. The file is close on
// exec, as all of Go's: a lock must not leak into a child.
func (h home) openLock(name string) (*os.File, error) {
	return os.OpenFile(h.path(name), os.O_RDWR|os.O_CREATE, 0o600)
}

// poll calls try at once and then every step until it is done or fails, or ctx
// ends; then the error is ctx's.
func poll(ctx context.Context, step time.Duration, try func() (done bool, err error)) error {
	tick := time.NewTicker(step)
	defer tick.Stop()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if done, err := try(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}
