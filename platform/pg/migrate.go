package pg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/pgmill/pgmill/migrations"
	"github.com/pgmill/pgmill/platform"
)

// Schema is where all private tables live, River's among them.
const Schema = "pgmill"

var ours = migrationSet{Schema, migrations.FS}

// ErrBusy is returned by Migrate when a table stayed locked by others for longer
// than a migration may wait. Nothing of the migration at hand remains; migrate
// again when the holder is done.
var ErrBusy = errors.New("a table is locked by another transaction")

const (
	migrateLock   = "select pg_try_advisory_xact_lock(1886219628, 3)"
	ddlWait       = 3 * time.Second        // DDL gives up, so that traffic never queues behind it (F77)
	codeWait      = 100 * time.Millisecond // so does code, which holds what emitters need, but tries again
	migratorsWait = 60 * time.Second       // how long one migrator waits for another
	turnPoll      = 50 * time.Millisecond  // and how often it asks
)

// Change is one thing that Migrate did or would do.
type Change struct {
	Part    string `json:"part"` // river, pgmill, code or a module
	Version int64  `json:"version"`
	Name    string `json:"name"`
	Applied bool   `json:"applied"`
}

// Migrate brings a database up to this build: River's tables, ours, views and
// functions, then each module's, in the order given. Any number of processes may call it at once: they take turns by a
// transaction-level lock, which dies with its process. It returns what it applied.
func Migrate(ctx context.Context, dsn string, log *slog.Logger, modules ...platform.Module) ([]Change, error) {
	pool, err := migrationPool(ctx, dsn)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	turn, err := waitTurn(ctx, pool)
	if err != nil {
		return nil, err
	}
	defer turn.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // only a lock is in it

	if _, err := pool.Exec(ctx, "create schema if not exists "+Schema); err != nil {
		return nil, migrateError(err)
	}
	done, err := migrateRiver(ctx, pool, log)
	if err != nil {
		return done, migrateError(err)
	}
	if err := mendIndexes(ctx, pool, log); err != nil {
		return done, migrateError(err)
	}
	own, err := ours.up(ctx, pool, log)
	done = append(done, own...)
	if err != nil {
		return done, migrateError(err)
	}
	code, err := installCode(ctx, pool)
	done = append(done, code...)
	if err != nil {
		return done, migrateError(err)
	}
	// Each time: an earlier migrator may have been killed just before it.
	if _, err := pool.Exec(ctx, "select pgmill.make_partitions()"); err != nil {
		return done, fmt.Errorf("make partitions: %w", migrateError(err))
	}
	for _, m := range modules {
		its, err := migrateModule(ctx, pool, m, log)
		done = append(done, its...)
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

func migrationPool(ctx context.Context, dsn string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, errors.New("the database DSN cannot be parsed")
	}
	cfg.MaxConns = 4
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // no named statements: a pooler may be between
	cfg.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, fmt.Sprintf("set lock_timeout = %d; set client_min_messages = warning", ddlWait.Milliseconds()))
		return err
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// waitTurn asks again and again rather than wait in a statement: that would have a
// snapshot, for whose end an index that is built concurrently waits.
func waitTurn(ctx context.Context, pool *pgxpool.Pool) (pgx.Tx, error) {
	late := time.NewTimer(migratorsWait)
	defer late.Stop()
	for {
		tx, err := pool.Begin(ctx)
		if err != nil {
			return nil, err
		}
		var mine bool
		_, err = tx.Exec(ctx, "set local idle_in_transaction_session_timeout = 0")
		if err == nil {
			err = tx.QueryRow(ctx, migrateLock, pgx.QueryExecModeSimpleProtocol).Scan(&mine) // a portal would keep its snapshot
		}
		if err == nil && mine {
			return tx, nil
		}
		if err = errors.Join(err, tx.Rollback(ctx)); err != nil {
			return nil, fmt.Errorf("wait for another migration: %w", migrateError(err))
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-late.C:
			return nil, fmt.Errorf("wait for another migration: %w", ErrBusy)
		case <-time.After(turnPoll):
		}
	}
}

// migrateRiver runs River's migrations one transaction each: in one transaction
// they fail with 55P04, a new enum value used where it was made.
func migrateRiver(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger) ([]Change, error) {
	m, err := riverMigrator(pool, log)
	if err != nil {
		return nil, err
	}
	res, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil)
	if err != nil {
		return nil, fmt.Errorf("river's migrations: %w", err)
	}
	var done []Change
	for _, v := range res.Versions {
		done = append(done, Change{Part: "river", Version: int64(v.Version), Name: v.Name, Applied: true})
	}
	return done, nil
}

// mendIndexes makes anew what a concurrent build left behind that was killed, or gave up
// behind a long transaction: there, written by everybody, and read by nobody, so that
// its migration's "if not exists" would pass it over.
func mendIndexes(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger) error {
	rows, err := pool.Query(ctx, `select format(case when c.relname ~ '_cc(new|old)[0-9]*$' then 'drop index concurrently %s' else 'reindex index concurrently %s' end, c.oid::regclass)
		from pg_index i join pg_class c on c.oid = i.indexrelid where c.relnamespace = to_regnamespace($1) and c.relkind = 'i' and i.indislive and not i.indisvalid order by c.relname ~ '_cc(new|old)[0-9]*$' desc`, Schema)
	if err != nil {
		return err
	}
	mends, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, mend := range mends {
		quiet(log).Warn("an index was left half made", "mend", mend)
		if _, err := pool.Exec(ctx, mend); err != nil {
			return err
		}
	}
	return nil
}

func riverMigrator(pool *pgxpool.Pool, log *slog.Logger) (*rivermigrate.Migrator[pgx.Tx], error) {
	return rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Schema: Schema, Logger: quiet(log)})
}

// Plan says what Migrate would do, and what is there already, in order.
func Plan(ctx context.Context, dsn string, log *slog.Logger, modules ...platform.Module) ([]Change, error) {
	pool, err := migrationPool(ctx, dsn)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	var started bool
	if err := pool.QueryRow(ctx, "select to_regnamespace($1) is not null", Schema).Scan(&started); err != nil {
		return nil, err
	}
	m, err := riverMigrator(pool, log)
	if err != nil {
		return nil, err
	}
	have := map[int]bool{}
	if started {
		versions, err := m.ExistingVersions(ctx)
		if err != nil {
			return nil, fmt.Errorf("river's versions: %w", err)
		}
		for _, v := range versions {
			have[v.Version] = true
		}
	}
	var plan []Change
	for _, v := range m.AllVersions() {
		plan = append(plan, Change{Part: "river", Version: int64(v.Version), Name: v.Name, Applied: have[v.Version]})
	}
	own, err := ours.plan(ctx, pool, log)
	if err != nil {
		return nil, err
	}
	code, err := planCode(ctx, pool)
	if err != nil {
		return nil, err
	}
	plan = append(append(plan, own...), code)
	for _, m := range modules {
		its, err := planModule(ctx, pool, m, log)
		if err != nil {
			return nil, fmt.Errorf("module %s: %w", m.Name, err)
		}
		plan = append(plan, its...)
	}
	return plan, nil
}

// migrateError turns what the database said into what the caller can act on.
func migrateError(err error) error {
	var pe *pgconn.PgError
	if !errors.As(err, &pe) {
		return err
	}
	switch pe.Code {
	case "55P03": // lock_not_available
		return fmt.Errorf("%w: nothing was changed by this step; run the migration again when it is done", ErrBusy)
	case "42501": // insufficient_privilege
		return fmt.Errorf("this role may not migrate: run `host migrate up` as the database's owner; creating the roles mill_* and pgmill_* needs CREATEROLE once: %w", err)
	}
	return err
}

func quiet(log *slog.Logger) *slog.Logger {
	if log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(levelAtLeast{log.Handler(), slog.LevelWarn})
}

// levelAtLeast passes on only records of a level and above.
type levelAtLeast struct {
	slog.Handler
	min slog.Level
}

func (h levelAtLeast) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= h.min && h.Handler.Enabled(ctx, l)
}
