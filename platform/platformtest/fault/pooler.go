package fault

import (
	"errors"
	"testing"

	"github.com/pgmill/pgmill/platform/platformtest/pgbouncer"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

// Pooler is a PgBouncer in transaction mode in front of one database.
type Pooler struct {
	DSN string // the database through the pooler

	t       testing.TB
	bouncer *pgbouncer.Bouncer
}

// NewPooler starts a pooler, which ends with the test. It has four sessions for each
// user. The test is skipped if the machine has no PgBouncer.
func NewPooler(t testing.TB, dsn string) *Pooler {
	t.Helper()
	dsn = pgtest.Direct(t, dsn)
	bouncer, err := pgbouncer.New(dsn, 4)
	if err != nil {
		t.Fatal(err)
	}
	p := &Pooler{t: t, bouncer: bouncer}
	if p.DSN, err = bouncer.Through(dsn); err != nil {
		t.Fatal(err)
	}
	p.Start()
	t.Cleanup(p.Kill)
	return p
}

// Start starts the pooler, or starts it again after Kill.
func (p *Pooler) Start() {
	p.t.Helper()
	if err := p.bouncer.Start(); errors.Is(err, pgbouncer.ErrNoBinary) {
		p.t.Skipf("this test needs PgBouncer: %v", err)
	} else if err != nil {
		p.t.Fatal(err)
	}
}

// Kill ends the pooler at once, with all connections through it.
func (p *Pooler) Kill() { p.bouncer.Kill() }
