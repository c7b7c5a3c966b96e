package model

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"
)

// hosts are processes that run the subscriptions, some of them always being killed,
// stopped or drained, and replaced.
type hosts struct {
	t     testing.TB
	w     *world
	mu    sync.Mutex
	slots []*process
	subs  string
	kills map[string]int
}

type process struct {
	cmd  *exec.Cmd
	said *bytes.Buffer
	done chan struct{}
}

func startHosts(t testing.TB, w *world, n int, subs string) *hosts {
	t.Helper()
	h := &hosts{t: t, w: w, subs: subs, kills: map[string]int{}}
	for range n {
		h.slots = append(h.slots, h.start())
	}
	t.Cleanup(func() {
		for _, p := range h.slots {
			p.end(h.t, syscall.SIGKILL)
		}
	})
	return h
}

func (h *hosts) start() *process {
	exe, err := os.Executable()
	if err != nil {
		h.t.Fatal(err)
	}
	p := &process{cmd: exec.Command(exe), said: &bytes.Buffer{}, done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), hostEnv+"="+h.w.dsn+" "+h.subs)
	p.cmd.Stderr = p.said
	if err := p.cmd.Start(); err != nil {
		h.t.Errorf("start a host: %v", err)
		close(p.done)
		return p
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	return p
}

// end sends a signal and waits for the process to be gone. One that does not go is
// made to say where it hangs.
func (p *process) end(t testing.TB, s syscall.Signal) {
	t.Helper()
	if p.cmd.Process == nil {
		return
	}
	for _, next := range []syscall.Signal{s, syscall.SIGQUIT, syscall.SIGKILL} {
		_ = p.cmd.Process.Signal(next)
		select {
		case <-p.done:
			if next != s {
				t.Errorf("a host did not end on %v; it was at\n%s", s, p.said)
			}
			return
		case <-time.After(30 * time.Second):
		}
	}
	t.Errorf("a host cannot be killed")
}

// shoot does something to one host after another until ctx ends: kill -9, SIGTERM,
// or SIGSTOP until its lease is gone and back. What ended is replaced, by a host
// that has the subscriptions of now.
func (h *hosts) shoot(ctx context.Context, every time.Duration) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(every/2 + rand.N(every)):
		}
		i := rand.IntN(len(h.slots))
		p := h.slots[i]
		switch what := rand.IntN(6); {
		case what < 3:
			h.count("kill -9")
			p.end(h.t, syscall.SIGKILL)
			h.replace(i)
		case what < 5:
			h.count("SIGSTOP")
			_ = p.cmd.Process.Signal(syscall.SIGSTOP)
			time.Sleep(hostTTL + rand.N(time.Second)) // the fault itself: a host that is away for longer than its lease
			_ = p.cmd.Process.Signal(syscall.SIGCONT)
		default:
			h.count("SIGTERM")
			p.end(h.t, syscall.SIGTERM)
			h.replace(i)
		}
	}
}

func (h *hosts) count(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kills[what]++
}

func (h *hosts) replace(i int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.slots[i] = h.start()
}

// deploy makes the hosts that start from now on have these subscriptions, and starts one.
func (h *hosts) deploy(subs string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.subs = subs
	h.slots = append(h.slots, h.start())
}

// drain ends all hosts in an orderly way and reports what did not.
func (h *hosts) drain(t testing.TB) {
	t.Helper()
	for _, p := range h.slots {
		p.end(t, syscall.SIGTERM)
		how, _ := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
		if !p.cmd.ProcessState.Success() && how.Signal() != syscall.SIGTERM { // which comes, at times, before it listens for signals
			t.Errorf("a host ended with %v: %s", p.cmd.ProcessState, p.said.String())
		}
	}
	h.slots = nil
}
