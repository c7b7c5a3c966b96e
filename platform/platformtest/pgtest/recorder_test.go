package pgtest_test

import (
	"fmt"
	"runtime"
	"testing"
)

// recorder is a test that may fail without harm.
type recorder struct {
	testing.TB
	said string
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}
