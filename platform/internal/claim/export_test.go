package claim

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver"
)

// NewDriver is our driver, for a River client with workers that ours never has.
func NewDriver(pool *pgxpool.Pool) (d riverdriver.Driver[pgx.Tx], ring func()) {
	own := newDriver(pool)
	return own, func() { own.ring(Queue) }
}

// PollInterval is River's own poll.
const PollInterval = pollInterval
