//go:build failpoints

package failpoint

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

var (
	hits atomic.Int64
	plan = os.Getenv("PGMILL_FAILPOINT") // read once: a host refuses settings it does not know
)

// At ends or stops the process at a named place, as PGMILL_FAILPOINT says:
// "name=kill" or "name=stop", with ":N" for the N-th time it is reached.
func At(name string) {
	where, how, ok := strings.Cut(plan, "=")
	if !ok || where != name {
		return
	}
	how, nth, counted := strings.Cut(how, ":")
	if n, _ := strconv.ParseInt(nth, 10, 64); counted && hits.Add(1) != n {
		return
	}
	switch how {
	case "kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "stop":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	}
}
