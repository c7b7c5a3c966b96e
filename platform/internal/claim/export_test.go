package claim

import (
	"context"

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

// Pace is how fetches of jobs are held back.
type Pace struct{ pace *pace }

// PacePause is for how long at most.
const PacePause = pacePause

// NewPace makes one.
func NewPace(slots int) Pace { return Pace{newPace(slots)} }

// Wait, Fetched and Ended are its methods.
func (p Pace) Wait(ctx context.Context, max int) bool { return p.pace.wait(ctx, max) }
func (p Pace) Fetched(got, max int) bool              { return p.pace.fetched(got, max) }
func (p Pace) Ended()                                 { p.pace.ended() }
