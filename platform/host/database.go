package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgmill/pgmill/platform/pg"
	"github.com/pgmill/pgmill/platform/policy"
)

// open names the database in cfg, and starts or joins the private Postgres if there
// is none. The caller calls done; linger is how long a server started here outlives
// its users, 0 for a moment.
func (o *options) open(ctx context.Context, cfg Config, linger time.Duration) (_ Config, done func(), err error) {
	if cfg.Database != "" {
		return cfg, func() {}, nil
	}
	p, err := pg.StartPrivate(ctx, pg.PrivateOptions{Dir: cfg.DataDir, Linger: linger, Log: o.logger(cfg)})
	if err != nil {
		return cfg, nil, err
	}
	cfg.Database = p.DSN()
	o.secret = policy.NewRedactor(cfg.Database, cfg.ListenURL)
	if p.Started() {
		fmt.Fprintf(o.stderr, "host: started a private Postgres in %s; it ends %s\n", p.Dir(), ending(linger))
	}
	return cfg, func() { _ = p.Close() }, nil
}

// ending is when a private Postgres ends that a command started. Who is only connected,
// as psql is, does not keep it.
func ending(linger time.Duration) string {
	if linger == 0 {
		return "with this command"
	}
	return fmt.Sprintf("in %g minutes, or that long after the last host that uses it: host serve keeps it", linger.Minutes())
}

// withConn runs f on one connection to the configured database, whose role needs what
// the role need may.
func (o *options) withConn(ctx context.Context, cfg Config, need string, f func(*pgx.Conn) error) error {
	cfg, done, err := o.open(ctx, cfg, 0)
	if err != nil {
		return err
	}
	defer done()
	config, err := pgx.ParseConfig(cfg.Database)
	if err != nil {
		return checkDSN(cfg.Database)
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = 5 * time.Second
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "pgmill cli"
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeExec // no named statements: a pooler may be between
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	return errors.Join(advised(ctx, conn, need, f(conn)), conn.Close(context.WithoutCancel(ctx)))
}

// advised is err with what mends it, where the database knows more than its error
// says: an older build's view lacks a column without naming the view, and who may not
// do something needs a role.
func advised(ctx context.Context, conn *pgx.Conn, need string, err error) error {
	var pe *pgconn.PgError
	switch {
	case !errors.As(err, &pe):
	case missing(pe) && errors.Is(pg.Check(ctx, conn), pg.ErrNotMigrated):
		return pg.ErrNotMigrated
	case pe.Code == "42501" && need != "":
		return fmt.Errorf("run `GRANT %s TO %s;` as the database's owner: %w", need, pgx.Identifier{conn.Config().User}.Sanitize(), err)
	}
	return err
}
