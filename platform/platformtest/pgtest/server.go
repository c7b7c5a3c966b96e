package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/pgmill/pgmill/platform/pg"
)

// linger bridges the time in which `go test` builds the next test binary.
const linger = 10 * time.Second

func init() {
	pg.KeeperMain() // this test binary may be asked to be the server's keeper
	if version := os.Getenv("PGMILL_TEST_POSTGRES"); version != "" {
		dir, major, err := pg.Binaries(version)
		if err != nil {
			panic(fmt.Sprintf("PGMILL_TEST_POSTGRES=%s: %v", version, err))
		}
		_ = os.Setenv("PGMILL_PG_BIN", dir) // for whatever starts a server here, and for children
		suffix = fmt.Sprint("-", major)
	}
}

// suffix tells the servers of versions that were asked for apart.
var suffix string

// Server returns the DSN of a superuser on the test server: $PGMILL_TEST_DSN if
// set, else a private one that all test binaries of this user share and that
// ends soon after the last of them. PGMILL_TEST_POSTGRES is the major version of its
// binaries, or their folder. The test is skipped if the machine has no PostgreSQL.
func Server(t testing.TB) string {
	t.Helper()
	if dsn := os.Getenv("PGMILL_TEST_DSN"); dsn != "" {
		return dsn
	}
	server, err := private()
	if errors.Is(err, pg.ErrNoBinaries) {
		t.Skipf("this test needs Postgres: %v; or a server for tests, in PGMILL_TEST_DSN", err)
	}
	if err != nil {
		t.Fatalf("test server: %v", err)
	}
	return server.DSN()
}

// private is never closed: the server sees this process end.
var private = sync.OnceValues(func() (*pg.Private, error) {
	return pg.StartPrivate(context.Background(), pg.PrivateOptions{
		Dir:    filepath.Join(os.TempDir(), fmt.Sprintf("pgmill-test-%d%s", os.Getuid(), suffix)),
		Fast:   true,
		Linger: linger,
		Settings: map[string]string{
			"max_connections":           "400",
			"max_prepared_transactions": "50",
			"track_activity_query_size": "16384",
		},
		Preload: []string{"pg_stat_statements"},
	})
})
