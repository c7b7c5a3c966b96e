package host

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/pgmill/pgmill/platform"
)

// F46: a supervisor that has no shell and no curl can ask, too.
func TestReadyAsksAHost(t *testing.T) {
	t.Parallel()
	ask := func(addr string) (int, string) {
		t.Helper()
		sh := shell{t: t, reg: platform.NewRegistry(), environ: []string{"PGMILL_PROFILE=single-db-pilot", "PGMILL_ADDR=" + addr}}
		code, stdout, stderr := sh.run("ready")
		return code, stdout + stderr
	}
	r := start(t, withFunctions(t, "a.one"), []string{"DATABASE_URL=" + migratedDatabase(t)}, "worker")
	r.becomes(200, "")
	_, port, _ := net.SplitHostPort(r.addr)
	for _, addr := range []string{r.addr, "0.0.0.0:" + port, ":" + port} {
		if code, said := ask(addr); code != exitOK || said != "ready\n" {
			t.Errorf("%s: exit code %d: %s", addr, code, said)
		}
	}
	r.signal()
	r.exits(exitOK, 30*time.Second)
	if code, said := ask(r.addr); code != exitFailed || !strings.Contains(said, "no host answers") {
		t.Errorf("a host that has ended: exit code %d: %s", code, said)
	}
	waits := start(t, withFunctions(t, "a.one"), []string{"DATABASE_URL=postgres://ann@127.0.0.1:1/d"}, "worker")
	waits.becomes(503, platform.ReasonDatabaseUnreachable)
	if code, said := ask(waits.addr); code != exitFailed || !strings.Contains(said, "not ready: [database_unreachable]") {
		t.Errorf("a host without its database: exit code %d: %s", code, said)
	}
	waits.signal()
	waits.exits(exitOK, 30*time.Second)
}
