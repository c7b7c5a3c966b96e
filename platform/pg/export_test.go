package pg

import (
	"context"
	"log/slog"

	"github.com/pressly/goose/v3"
)

// MigrateTo brings River's tables and ours up to a version, without functions and views.
func MigrateTo(ctx context.Context, dsn string, version int64) error {
	pool, err := migrationPool(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, "create schema if not exists "+Schema); err != nil {
		return err
	}
	if _, err := migrateRiver(ctx, pool, slog.New(slog.DiscardHandler)); err != nil {
		return err
	}
	return ours.with(pool, nil, func(p *goose.Provider) error {
		_, err := p.UpTo(ctx, version)
		return err
	})
}
