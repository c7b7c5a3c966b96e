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
}

// Server returns the DSN of a superuser on the test server: $PGMILL_TEST_DSN if
// set, else a private one that all test binaries of this user share and that
// ends soon after the last of them. The test is skipped if the machine has no
// PostgreSQL.
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
		Dir:    filepath.Join(os.TempDir(), fmt.Sprintf("pgmill-test-%d", os.Getuid())),
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
