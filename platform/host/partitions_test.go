package host_test

import (
	"testing"
	"time"

	"github.com/pgmill/pgmill/platform/host"
	"github.com/pgmill/pgmill/platform/platformtest"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

// A host that has just begun makes a partition that is missing ahead, as a role that
// owns nothing.
func TestPartitionsAreMadeAtTheStart(t *testing.T) {
	t.Parallel()
	dsn := platformtest.DSN(t)
	pool := platformtest.Pool(t, dsn)
	pgtest.Exec(t, pool, `drop table pgmill.log_3`)
	_, as := pgtest.Role(t, dsn, "pgmill_runtime")
	platformtest.HostWith(t, &host.Worker{Database: as})
	platformtest.WaitWithin(t, pool, 40*time.Second, `select exists (select from pg_inherits where inhparent = 'pgmill.log'::regclass and inhrelid = to_regclass('pgmill.log_3'))`)
}
