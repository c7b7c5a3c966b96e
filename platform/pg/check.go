package pg

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/migrations"
)

// ErrNotMigrated is returned by Check when the database lacks what this build needs.
var ErrNotMigrated = errors.New("the database is not migrated for this build: run `host migrate up`")

// ErrGrantMissing is wrapped by the error of Check that names the missing grant.
var ErrGrantMissing = errors.New("a grant is missing")

// Querier is a pool or one connection.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Check says whether a host can run on this database: migrated, with code at least
// as new as this build's, and with the rights that running needs (DML only).
func Check(ctx context.Context, db Querier) error {
	var exists bool
	// Not to_regclass, which refuses who may not use the schema.
	if err := db.QueryRow(ctx, "select exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = 'pgmill' and c.relname = 'build')").Scan(&exists); err != nil {
		return err
	}
	if !exists {
		return ErrNotMigrated
	}
	if rights, err := granted(ctx, db); err != nil {
		return err
	} else if !rights { // no GRANT to one role mends that
		return ErrNotMigrated
	}
	if err := checkGrants(ctx, db); err != nil {
		return err
	}
	files, err := migrations.FS.ReadDir(".")
	if err != nil {
		return err
	}
	var applied int
	if err := db.QueryRow(ctx, "select count(*) from pgmill.goose_db_version where is_applied and version_id > 0").Scan(&applied); err != nil {
		return err
	}
	code, err := planCode(ctx, db)
	if err != nil {
		return err
	}
	if applied < len(files) || !code.Applied {
		return ErrNotMigrated
	}
	return nil
}

// checkGrants names the grant that mends what is missing.
func checkGrants(ctx context.Context, db Querier) error {
	rows, err := db.Query(ctx, `
		select t.need from (
		  select format('%s on table %s.%I', p.priv, n.nspname, c.relname) as need, has_table_privilege(c.oid, p.priv) as ok
		    from pg_class c join pg_namespace n on n.oid = c.relnamespace
		   cross join (values ('select'), ('insert'), ('update'), ('delete')) p(priv)
		   where n.nspname = 'pgmill' and c.relkind in ('r', 'p') and not c.relispartition
		     and not (p.priv in ('update', 'delete') and c.relname in ('event', 'log', 'audit'))
		     and not (p.priv <> 'select' and c.relname in ('build', 'archive', 'module', 'goose_db_version', 'river_migration'))
		  union all
		  select format('usage on schema %I', n.nspname), has_schema_privilege(n.oid, 'usage') from pg_namespace n where n.nspname in ('pgmill', 'mill')
		  union all
		  select format('usage on sequence pgmill.%I', c.relname), has_sequence_privilege(c.oid, 'usage')
		    from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = 'pgmill' and c.relkind = 'S' and c.relname in ('event_id', 'river_job_id_seq')
		  union all
		  select format('execute on function %s', p.oid::regprocedure), has_function_privilege(p.oid, 'execute')
		    from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname = 'pgmill' and p.prokind in ('f', 'p')
		) t where not t.ok order by t.need not like 'usage on schema%', t.need`)
	if err != nil {
		return err
	}
	missing, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(missing) == 0 {
		return err
	}
	var role string
	if err := db.QueryRow(ctx, "select quote_ident(current_user)").Scan(&role); err != nil {
		return err
	}
	more := ""
	if len(missing) > 3 {
		more = fmt.Sprintf(" and %d more", len(missing)-3)
		missing = missing[:3]
	}
	return fmt.Errorf("%w: role %s lacks %s%s: run `GRANT pgmill_runtime TO %s;` as the owner (or, one by one, `GRANT %s TO %s;`)",
		ErrGrantMissing, role, strings.Join(missing, ", "), more, role, missing[0], role)
}
