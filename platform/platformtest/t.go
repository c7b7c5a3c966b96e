package platformtest

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"testing"
)

// T is a test outside a test: for an Example that runs, and to see helpers fail. Fatalf
// ends the goroutine. It has what this package and pgtest call, and no other method of
// testing.TB.
type T struct {
	testing.TB
	ctx    context.Context
	cancel context.CancelFunc
	undo   []func()
	said   []string
}

// NewT begins one; the caller must End it.
func NewT() *T {
	ctx, cancel := context.WithCancel(context.Background())
	return &T{ctx: ctx, cancel: cancel}
}

func (t *T) Helper()                  {}
func (t *T) Name() string             { return "example" }
func (t *T) Output() io.Writer        { return io.Discard }
func (t *T) Context() context.Context { return t.ctx }
func (t *T) Cleanup(f func())         { t.undo = append(t.undo, f) }
func (t *T) Failed() bool             { return len(t.said) > 0 }
func (t *T) Logf(string, ...any)      {}

func (t *T) Errorf(format string, args ...any) {
	t.said = append(t.said, fmt.Sprintf(format, args...))
}

func (t *T) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	runtime.Goexit()
}

func (t *T) Skipf(format string, args ...any) { t.Fatalf(format, args...) }

// Said is what failed until now.
func (t *T) Said() []string { return t.said }

// End runs the cleanups and prints what failed, so that an Example's output is not as it
// should be.
func (t *T) End() {
	t.cancel()
	for _, f := range slices.Backward(t.undo) {
		f()
	}
	for _, s := range t.said {
		fmt.Println(s)
	}
}
