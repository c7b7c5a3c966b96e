package pg

import (
	"cmp"
	"context"
	"io/fs"
	"log/slog"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
)

// migrationSet is the migrations of one schema: pgmill's own or a module's. goose's
// table is in the schema.
type migrationSet struct {
	schema string
	files  fs.FS
}

func (s migrationSet) table() string { return s.schema + ".goose_db_version" }

// up applies what is not applied, in order, and answers it.
func (s migrationSet) up(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger) ([]Change, error) {
	var done []Change
	err := s.with(pool, log, func(p *goose.Provider) error {
		res, err := p.Up(ctx)
		for _, r := range res {
			done = append(done, Change{Part: s.schema, Version: r.Source.Version, Name: r.Source.Path, Applied: true})
		}
		return err
	})
	return done, err
}

// plan is all migrations in order, and whether they are applied.
func (s migrationSet) plan(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger) ([]Change, error) {
	have := map[int64]bool{}
	var there bool
	if err := pool.QueryRow(ctx, "select to_regclass($1) is not null", s.table()).Scan(&there); err != nil {
		return nil, err
	}
	if there {
		rows, err := pool.Query(ctx, "select version_id from "+s.table()+" where is_applied")
		if err != nil {
			return nil, err
		}
		versions, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return nil, err
		}
		for _, v := range versions {
			have[v] = true
		}
	}
	var plan []Change
	err := s.with(pool, log, func(p *goose.Provider) error {
		for _, source := range p.ListSources() {
			plan = append(plan, Change{Part: s.schema, Version: source.Version, Name: source.Path, Applied: have[source.Version]})
		}
		return nil
	})
	slices.SortFunc(plan, func(a, b Change) int { return cmp.Compare(a.Version, b.Version) })
	return plan, err
}

func (s migrationSet) with(pool *pgxpool.Pool, log *slog.Logger, use func(*goose.Provider) error) error {
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	p, err := goose.NewProvider(goose.DialectPostgres, db, s.files,
		goose.WithTableName(s.table()), goose.WithSlog(quiet(log)), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	return use(p)
}
