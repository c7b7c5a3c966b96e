package host

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// partitionsEvery is how often partitions are made ahead; three of five million are
// always there.
const partitionsEvery = time.Minute

// keepPartitions has the log's partitions made ahead until ctx ends, the first time at
// once: a host that ends within a minute makes some, too. Failing is not
// urgent: the default partition is the net, and mill.health says when it is used.
func (w *Worker) keepPartitions(ctx context.Context, pool *pgxpool.Pool) error {
	for wait := time.Duration(0); ; wait = partitionsEvery {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		if _, err := pool.Exec(ctx, "select pgmill.make_partitions()"); err != nil && ctx.Err() == nil {
			w.Log.Warn("partitions not made ahead", "error", err)
		}
	}
}
