package host

import (
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// F46: a supervisor hears of a host that it is ready, then each half of its watchdog
// interval that it lives, and at the end that it stops. Not parallel: the socket is in
// the environment.
func TestF46SupervisorHears(t *testing.T) {
	dsn := migratedDatabase(t)
	socket := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("NOTIFY_SOCKET", socket)
	t.Setenv("WATCHDOG_USEC", "200000")
	t.Setenv("WATCHDOG_PID", "")
	hear := func() string {
		t.Helper()
		_ = l.SetReadDeadline(time.Now().Add(30 * time.Second))
		b := make([]byte, 100)
		n, err := l.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
	r := start(t, withFunctions(t, "a.one"), []string{"DATABASE_URL=" + dsn}, "worker")
	if got := hear(); got != "READY=1" {
		t.Errorf("heard %q first", got)
	}
	if code, p := r.probe("/readyz"); code != 200 {
		t.Errorf("it said it was ready, but /readyz answers %d %v", code, p)
	}
	for range 3 {
		if got := hear(); got != "WATCHDOG=1" {
			t.Errorf("heard %q, want a sign of life", got)
		}
	}
	r.signal()
	var rest []string
	for !slices.Contains(rest, "STOPPING=1") {
		rest = append(rest, hear())
	}
	if rest[len(rest)-1] != "STOPPING=1" || strings.Contains(strings.Join(rest[:len(rest)-1], ""), "READY") {
		t.Errorf("heard %q at the end", rest)
	}
	r.exits(exitOK, 30*time.Second)
}

// A loop that does not go round any more gets no sign of life.
func TestTurningEndsWithTheLoop(t *testing.T) {
	t.Parallel()
	w := &Worker{Poll: time.Second, LeaseTTL: time.Second}
	w.started = time.Now().Add(-time.Hour)
	if !w.turning() {
		t.Error("a worker that has not begun is taken for stuck")
	}
	w.lastTurn.Store(int64(59 * time.Minute))
	if w.turning() {
		t.Error("a loop that stands for a minute is taken for well")
	}
	w.turned()
	if !w.turning() {
		t.Error("a loop that turned just now is taken for stuck")
	}
}
