package pg

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// keeperEnv holds a keeperSpec and makes KeeperMain the keeper.
const keeperEnv = "PGMILL_PRIVATE_POSTGRES"

// The files that a keeper inherits.
const (
	keeperLockFD = 3 // keeperLock, held exclusively
	reportFD     = 4 // a pipe: reportReady, or what went wrong
)

const reportReady = "ready"

// keeperSpec is all that a keeper is told.
type keeperSpec struct {
	Dir      string
	Bin      string
	Fast     bool
	Settings map[string]string
	Preload  []string
	Linger   time.Duration
	NewPort  bool // nobody has a DSN yet: the port may change if it is taken
}

// watch puts a new keeper, and with it the server, in the place of one that was
// killed while this process uses the server. Each user watches; the first one
// to get the lock acts.
func (p *Private) watch(ctx context.Context) {
	defer close(p.watched)
	wait := watchPoll
	for {
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		if !sameFile(p.users, p.home.path(usersLock)) {
			p.opts.Log.Error("private Postgres: its directory was removed", "dir", p.home.dir)
			return
		}
		err := p.ensureKeeper(ctx, false)
		switch {
		case err == nil:
			wait = watchPoll
		case ctx.Err() == nil:
			p.opts.Log.Error("private Postgres: restart", "dir", p.home.dir, "error", err)
			wait = min(2*wait, 5*time.Second)
		}
	}
}

// ensureKeeper starts a keeper unless there is one, and then returns when its
// server is ready. Somebody else's keeper may not be ready yet.
func (p *Private) ensureKeeper(ctx context.Context, newPort bool) error {
	if p.child != 0 && reap(p.child, false) {
		p.child = 0
	}
	lock, err := p.home.openLock(keeperLock)
	if err != nil {
		return err
	}
	defer lock.Close() // the keeper has its own copy of the locked file
	if free, err := tryLock(lock, exclusive); !free || err != nil {
		return err
	}
	major, err := p.home.dataMajor()
	if err != nil {
		return err
	}
	bin, err := findBinaries(binaryFolders(), major)
	if err != nil {
		return err
	}
	return p.startKeeper(ctx, lock, keeperSpec{
		Dir: p.home.dir, Bin: bin.dir, Fast: p.opts.Fast, Settings: p.opts.Settings,
		Preload: bin.having(p.opts.Preload), Linger: p.opts.Linger, NewPort: newPort,
	})
}

func (p *Private) startKeeper(ctx context.Context, lock *os.File, spec keeperSpec) error {
	text, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	exe, err := executable()
	if err != nil {
		return err
	}
	log, err := p.home.openLog()
	if err != nil {
		return err
	}
	defer log.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd := exec.Command(exe)
	cmd.Args = []string{"pgmill-keeper", spec.Dir}
	cmd.Dir = "/"
	cmd.Env = append(serverEnv(), keeperEnv+"="+string(text))
	cmd.Stdout, cmd.Stderr = log, log // never ours: who waits for our output must not wait for the keeper
	cmd.ExtraFiles = []*os.File{lock, w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a ^C is for us, not for it
	err = cmd.Start()
	_ = w.Close()
	if err != nil {
		return fmt.Errorf("start the keeper: %w", err)
	}
	if p.child != 0 { // one that has let its lock go and is about to exit
		go reap(p.child, true)
	}
	p.child = cmd.Process.Pid
	_ = cmd.Process.Release()
	return report(ctx, r)
}

var errKeeperKilled = errors.New("the keeper was killed before the server was ready")

// report waits for the keeper's one message.
func report(ctx context.Context, r *os.File) error {
	stop := context.AfterFunc(ctx, func() { _ = r.Close() })
	defer stop()
	said, err := io.ReadAll(r)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return err
	case len(said) == 0:
		return errKeeperKilled
	case string(said) != reportReady:
		return errors.New(strings.TrimSpace(string(said)))
	}
	return nil
}

// reap collects an ended child; false means that it still runs. It blocks only
// if it is told to wait.
func reap(pid int, wait bool) bool {
	options := syscall.WNOHANG
	if wait {
		options = 0
	}
	for {
		got, err := syscall.Wait4(pid, nil, options, nil)
		if !errors.Is(err, syscall.EINTR) {
			return got != 0
		}
	}
}

// sameFile reports whether the open file is still the one that has this name.
func sameFile(f *os.File, path string) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(path)
	return err == nil && os.SameFile(open, named)
}
