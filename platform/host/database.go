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
	return cfg, func() { _ = p.Close() }, nil
}

// withConn runs f on one connection to the configured database.
func (o *options) withConn(ctx context.Context, cfg Config, f func(*pgx.Conn) error) error {
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
		return fmt.Errorf("database unreachable: %w", err)
	}
	return errors.Join(orNotMigrated(ctx, conn, f(conn)), conn.Close(context.WithoutCancel(ctx)))
}

// orNotMigrated is err, unless something is missing because the database is not
// migrated: an older build's view may lack a column, and says so without its name.
func orNotMigrated(ctx context.Context, conn *pgx.Conn, err error) error {
	var pe *pgconn.PgError
	if errors.As(err, &pe) && missing(pe) && errors.Is(pg.Check(ctx, conn), pg.ErrNotMigrated) {
		return pg.ErrNotMigrated
	}
	return err
}
