//go:build failpoints

package subscription

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

var (
	failHits atomic.Int64
	failPlan = os.Getenv("PGMILL_FAILPOINT") // read once: a host refuses settings it does not know
)

// failpoint ends or stops the process at a named place, as PGMILL_FAILPOINT says:
// "name=kill" or "name=stop", with ":N" for the N-th time it is reached.
func failpoint(name string) {
	where, how, ok := strings.Cut(failPlan, "=")
	if !ok || where != name {
		return
	}
	how, nth, counted := strings.Cut(how, ":")
	if n, _ := strconv.ParseInt(nth, 10, 64); counted && failHits.Add(1) != n {
		return
	}
	switch how {
	case "kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "stop":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	}
}
