package host

import (
	"context"
	"crypto/tls"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/pg"
)

// localPatience is how long a host on a developer's machine waits for its first
// connection: somebody is looking. Elsewhere it waits for as long as it takes (F83).
const localPatience = 30 * time.Second

// reach tries until the database is there, and says what it waits for. What waiting does
// not mend ends it at once, and so does its patience.
func (p *process) reach(ctx context.Context, try func(ctx context.Context) error) error {
	unreachable := platform.ReasonDatabaseUnreachable
	waited := time.Duration(0)
	for wait := time.Second; ; wait = min(2*wait, 4*time.Second) {
		err := try(ctx)
		if err == nil || !mayCome(err) || p.patience > 0 && waited >= p.patience {
			p.waiting.Store(nil)
			return err
		}
		p.waiting.Store(&unreachable)
		p.log.Warn("no database yet, trying again", "wait", wait, "why", errorLines(err)[0])
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
			waited += wait
		}
	}
}

// mayCome reports whether a database that cannot be reached for this error may be there
// in a moment: it is starting, or the network or its name is.
func mayCome(err error) bool {
	var pe *pgconn.PgError
	switch {
	case errors.As(err, &pe) && stateOf(pe) == "3D000", errors.Is(err, pg.ErrNoBinaries), noTLS(err), errors.As(err, new(*tls.CertificateVerificationError)):
		return false
	}
	return exitCode(err) == exitUnreachable
}

// noTLS reports whether the server has none and the DSN asks for it; pgx has no error
// value for that.
func noTLS(err error) bool { return strings.Contains(err.Error(), "server refused TLS connection") }

// knock makes one connection and closes it.
func knock(ctx context.Context, dsn string) error {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return checkDSN(dsn)
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = 5 * time.Second
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}
