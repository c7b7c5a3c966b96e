package wakeup_test

import (
	"testing"
	"time"

	"github.com/pgmill/pgmill/platform/host"
	"github.com/pgmill/pgmill/platform/platformtest"
	"github.com/pgmill/pgmill/platform/platformtest/fault"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

// F43, N26: behind a pooler in transaction mode a host works by its poll and says that
// it hears nothing; with a DSN that bypasses the pooler it hears. The pooler's death
// midway loses nothing.
func TestF43HostBehindAPooler(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		direct bool
	}{{"and nothing else", false}, {"and a direct DSN", true}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dsn, pool := effects(t)
			pooler := fault.NewPooler(t, dsn)
			w := &host.Worker{Database: pooler.DSN}
			if tt.direct {
				w.ListenURL = pgtest.Direct(t, dsn)
			}
			w = platformtest.HostWith(t, w, noting("a.load"))
			sql(t, pool, `select count(mill.emit('test.load', 'o' || g % 7)) from generate_series(1, 500) g`)
			allNoted(t, pool, time.Minute)
			heard := `select not 'listen_unavailable' = any (reasons) from pgmill.instance where kind = 'worker' and deregistered_at is null`
			if tt.direct {
				hearing(t, w)
			}
			platformtest.WaitFor(t, pool, `select (`+heard+`) = $1`, tt.direct)
			pooler.Kill()
			sql(t, pool, `select count(mill.emit('test.load', 'o' || g % 7)) from generate_series(1, 500) g`)
			pooler.Start()
			allNoted(t, pool, time.Minute)
		})
	}
}
