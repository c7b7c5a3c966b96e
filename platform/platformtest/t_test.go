package platformtest_test

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"testing"
)

// fakeT is a test outside a test: for the Example, and to see helpers fail. Fatalf
// ends the goroutine.
type fakeT struct {
	testing.TB
	ctx    context.Context
	cancel context.CancelFunc
	undo   []func()
	said   []string
}

func newT() *fakeT {
	ctx, cancel := context.WithCancel(context.Background())
	return &fakeT{ctx: ctx, cancel: cancel}
}

func (t *fakeT) Helper()                  {}
func (t *fakeT) Name() string             { return "fake" }
func (t *fakeT) Output() io.Writer        { return io.Discard }
func (t *fakeT) Context() context.Context { return t.ctx }
func (t *fakeT) Cleanup(f func())         { t.undo = append(t.undo, f) }
func (t *fakeT) Failed() bool             { return len(t.said) > 0 }
func (t *fakeT) Logf(string, ...any)      {}

func (t *fakeT) Errorf(format string, args ...any) {
	t.said = append(t.said, fmt.Sprintf(format, args...))
}

func (t *fakeT) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	runtime.Goexit()
}

func (t *fakeT) Skipf(format string, args ...any) { t.Fatalf(format, args...) }

// end runs the cleanups and prints what failed.
func (t *fakeT) end() {
	t.cancel()
	for _, f := range slices.Backward(t.undo) {
		f()
	}
	for _, s := range t.said {
		fmt.Println(s)
	}
}
