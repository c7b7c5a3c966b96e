package pg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/platform"
)

// roleTries is how often the roles of a module are looked at again because another
// database of the cluster makes them at the same moment.
const roleTries = 10

// migrateModule brings a module up to this build: its role, its schema, its
// migrations, and the rights that follow from what they made.
func migrateModule(ctx context.Context, pool *pgxpool.Pool, m platform.Module, log *slog.Logger) (done []Change, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("module %s: %w", m.Name, migrateError(err))
		}
	}()
	plan, err := planModule(ctx, pool, m, log)
	if err != nil || !slices.ContainsFunc(plan, func(c Change) bool { return !c.Applied }) {
		return nil, err
	}
	if err := makeRole(ctx, pool, m); err != nil {
		return nil, err
	}
	if _, err := pool.Exec(ctx, "select pgmill.open_module($1)", m.Name); err != nil {
		return nil, err
	}
	done, err = moduleSet(m).up(ctx, pool, log)
	if err != nil {
		if strings.Contains(err.Error(), "out-of-order") {
			err = fmt.Errorf("give the new migration a number above those that are applied: %w", err)
		}
		return done, err
	}
	if _, err := pool.Exec(ctx, "select pgmill.grant_module($1)", m.Name); err != nil {
		return done, err
	}
	return append(done, rights(m, true)), nil
}

func moduleSet(m platform.Module) migrationSet { return migrationSet{m.Name, m.Migrations} }

// rights is the last change of a module.
func rights(m platform.Module, applied bool) Change {
	return Change{Part: m.Name, Name: "role " + m.Role() + " and its rights", Applied: applied}
}

// makeRole makes what the module's role lacks. Who may not make roles is told the
// statements for somebody who may.
func makeRole(ctx context.Context, pool *pgxpool.Pool, m platform.Module) error {
	for try := 1; ; try++ {
		lacks, err := roleLacks(ctx, pool, m)
		if err != nil || len(lacks) == 0 {
			return err
		}
		_, err = pool.Exec(ctx, lacks[0])
		var pe *pgconn.PgError
		switch {
		case err == nil:
			try = 0
		case !errors.As(err, &pe):
			return err
		case pe.Code == "42501":
			return fmt.Errorf("%w, which this role may not make: run %s as a role that may (CREATEROLE), then `host migrate up` again",
				errNoRole, "`"+strings.Join(roleStatements(ctx, pool, m, lacks), "; ")+";`")
		case try == roleTries || pe.Code != "42710" && pe.Code != "23505" && pe.Code != "XX000": // made elsewhere, or tuple concurrently updated
			return err
		}
	}
}

var errNoRole = errors.New("a role is missing")

// roleStatements are all that the role lacks, also what only shows once it is there.
func roleStatements(ctx context.Context, db Querier, m platform.Module, lacks []string) []string {
	if !strings.HasPrefix(lacks[0], "create role") {
		return lacks
	}
	role := m.Role()
	all := append(lacks, "grant mill_module, mill_emitter, mill_reader to "+role, "grant "+role+" to pgmill_modules")
	var me string
	if err := db.QueryRow(ctx, "select quote_ident(current_user)").Scan(&me); err == nil {
		all = append(all, "grant "+role+" to "+me)
	}
	return all
}

func roleLacks(ctx context.Context, db Querier, m platform.Module) ([]string, error) {
	rows, err := db.Query(ctx, "select pgmill.module_role_lacks($1)", m.Name)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// planModule says what migrateModule would do, and what is there already.
func planModule(ctx context.Context, pool *pgxpool.Pool, m platform.Module, log *slog.Logger) ([]Change, error) {
	plan, err := moduleSet(m).plan(ctx, pool, log)
	if err != nil {
		return nil, err
	}
	var known bool
	if err := pool.QueryRow(ctx, "select to_regprocedure('pgmill.module_lacks(text, bigint[])') is not null").Scan(&known); err != nil || !known {
		return append(plan, rights(m, false)), err
	}
	lacks, err := roleLacks(ctx, pool, m)
	if err != nil {
		return nil, err
	}
	var what *string
	err = pool.QueryRow(ctx, "select pgmill.module_lacks($1, $2)", m.Name, m.Versions()).Scan(&what)
	return append(plan, rights(m, len(lacks) == 0 && what == nil)), err
}

// CheckModules says whether a host can run the functions of modules on this database:
// migrated, and the right to become their roles. Check comes before.
func CheckModules(ctx context.Context, db Querier, modules []platform.Module) error {
	for _, m := range modules {
		var lacks *string
		if err := db.QueryRow(ctx, "select pgmill.module_lacks($1, $2)", m.Name, m.Versions()).Scan(&lacks); err != nil {
			return err
		}
		switch {
		case lacks == nil:
		case *lacks == "grant":
			var role string
			if err := db.QueryRow(ctx, "select quote_ident(current_user)").Scan(&role); err != nil {
				return err
			}
			return fmt.Errorf("%w: module %s: role %s may not become %s: run `GRANT pgmill_modules TO %s;` as the owner", ErrGrantMissing, m.Name, role, m.Role(), role)
		default:
			return fmt.Errorf("module %s: %w", m.Name, ErrNotMigrated)
		}
	}
	return nil
}

// UnknownModules lists the modules that this database has and this build has not.
func UnknownModules(ctx context.Context, db Querier, modules []platform.Module) ([]string, error) {
	names := make([]string, len(modules))
	for i, m := range modules {
		names[i] = m.Name
	}
	rows, err := db.Query(ctx, "select name from mill.modules where name <> all ($1) order by name", names)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
