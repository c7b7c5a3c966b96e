package pgtest_test

import (
	"testing"

	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

// Not parallel: it is about the environment.
func TestDatabaseBehindAPooler(t *testing.T) {
	pgtest.Server(t) // skips where there is none
	for _, mode := range []string{"transaction", "transaction+direct"} {
		t.Setenv("PGMILL_TEST_POOLER", mode)
		dsn := pgtest.Database(t, nil, "empty")
		direct := pgtest.Direct(t, dsn)
		through, past := connect(t, dsn), connect(t, direct)
		if pid := pgtest.Ask[uint32](t, through, `select pg_backend_pid()`); pid == through.PgConn().PID() {
			t.Errorf("%s: no pooler is between", mode)
		}
		if pid := pgtest.Ask[uint32](t, past, `select pg_backend_pid()`); pid != past.PgConn().PID() {
			t.Errorf("%s: Direct goes through the pooler", mode)
		}
		const database = `select current_database()::text`
		if a, b := pgtest.Ask[string](t, through, database), pgtest.Ask[string](t, past, database); a != b {
			t.Errorf("%s: databases %s and, past the pooler, %s", mode, a, b)
		}
		role, as := pgtest.Role(t, dsn)
		if got := ask[string](t, as, `select session_user::text`); got != role {
			t.Errorf("%s: %s is %s behind the pooler", mode, role, got)
		}
		want := map[string]string{"transaction+direct": direct}[mode]
		if got := pgtest.Listen(t, dsn); got != want {
			t.Errorf("%s: Listen goes elsewhere, or somewhere", mode)
		}
	}
}
