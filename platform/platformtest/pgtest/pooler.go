package pgtest

import (
	"os"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform/platformtest/pgbouncer"
)

// How tests reach their databases, in PGMILL_TEST_POOLER: past no pooler, or through
// one in transaction mode, with or without a DSN for LISTEN that goes past it.
const (
	poolerEnv      = "PGMILL_TEST_POOLER"
	poolerAlone    = "transaction"
	poolerAndPast  = "transaction+direct"
	poolerSessions = 100 // each user's in each database; more than any test holds open at a time
)

// bouncer is the pooler of this test process, nil if tests do without.
func bouncer(t testing.TB) *pgbouncer.Bouncer {
	t.Helper()
	switch mode := os.Getenv(poolerEnv); mode {
	case "":
		return nil
	case poolerAlone, poolerAndPast:
	default:
		t.Fatalf("%s=%s: want %s or %s", poolerEnv, mode, poolerAlone, poolerAndPast)
	}
	server := Server(t)
	startPooler.Do(func() {
		if pooler, poolerErr = pgbouncer.New(server, poolerSessions); poolerErr == nil {
			poolerErr = pooler.Start()
		}
	})
	if poolerErr != nil {
		t.Fatalf("%s: %v", poolerEnv, poolerErr)
	}
	return pooler
}

var (
	startPooler sync.Once
	pooler      *pgbouncer.Bouncer
	poolerErr   error
)

// through is the DSN that a test gets for a database of the server.
func through(t testing.TB, dsn string) string {
	t.Helper()
	b := bouncer(t)
	if b == nil {
		return dsn
	}
	dsn, err := b.Through(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return dsn
}

// Direct is the DSN without the pooler that tests may run behind. It is for a test's
// own hand on the database: LISTEN, settings and locks of a session, prepared
// transactions' owners. The code under test gets the DSN itself.
func Direct(t testing.TB, dsn string) string {
	t.Helper()
	b := bouncer(t)
	if b == nil {
		return dsn
	}
	dsn, err := b.Past(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return dsn
}

// Listen is the DSN for LISTEN that a host gets beside dsn: "" if there is none or no
// need.
func Listen(t testing.TB, dsn string) string {
	t.Helper()
	if os.Getenv(poolerEnv) != poolerAndPast {
		return ""
	}
	return Direct(t, dsn)
}

// NeedsEars skips a test of what hosts hear, if all they have is a pooler.
func NeedsEars(t testing.TB) {
	t.Helper()
	if os.Getenv(poolerEnv) == poolerAlone {
		t.Skipf("hosts hear nothing with %s=%s", poolerEnv, poolerAlone)
	}
}

// Pooled makes a connection's settings fit for a DSN of a test: behind a pooler no
// statement may be kept by name.
func Pooled(c *pgx.ConnConfig) {
	if os.Getenv(poolerEnv) != "" {
		c.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
}
