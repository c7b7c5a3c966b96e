package pg

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/sql"
)

// Ordinal counts the releases of sql/functions and sql/views. A host whose ordinal
// is below the database's leaves the newer code in place. Raise it with every
// change to those files once a release has shipped.
const Ordinal = 1

// codeFiles are the files of sql/ in the order they are applied.
func codeFiles() []string {
	functions, _ := fs.Glob(sql.FS, "functions/*.sql")
	views, _ := fs.Glob(sql.FS, "views/*.sql")
	return append(functions, views...)
}

// CodeHash identifies the functions and views of this build.
func CodeHash() string {
	h := sha256.New()
	for _, name := range codeFiles() {
		text, _ := fs.ReadFile(sql.FS, name)
		h.Write([]byte(name))
		h.Write(text)
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
}

// installCode puts functions and views in place in one transaction, unless this
// build's are there already or a newer build's are.
func installCode(ctx context.Context, pool *pgxpool.Pool) ([]Change, error) {
	plan, err := planCode(ctx, pool)
	if err != nil || plan.Applied {
		return nil, err
	}
	if err := applyCode(ctx, pool); err != nil {
		return nil, err
	}
	plan.Applied = true
	return []Change{plan}, nil
}

// applyCode tries again and again for as long as DDL may wait: each try waits only
// for a moment, because emitters wait behind it (F77).
func applyCode(ctx context.Context, pool *pgxpool.Pool) error {
	for try := 1; ; try++ {
		err := pgx.BeginFunc(ctx, pool, applyCodeIn(ctx))
		var pe *pgconn.PgError
		if !errors.As(err, &pe) || pe.Code != "55P03" || time.Duration(try)*3*codeWait >= ddlWait {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(2 * codeWait):
		}
	}
}

func applyCodeIn(ctx context.Context) func(tx pgx.Tx) error {
	return func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, fmt.Sprintf("set local lock_timeout = %d", codeWait.Milliseconds())); err != nil {
			return err
		}
		for _, name := range codeFiles() {
			text, err := fs.ReadFile(sql.FS, name)
			if err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, string(text)); err != nil {
				return fmt.Errorf("sql/%s: %w", name, err)
			}
		}
		_, err := tx.Exec(ctx, `insert into pgmill.build (ordinal, hash) values ($1, $2)
			on conflict (one) do update set ordinal = excluded.ordinal, hash = excluded.hash, at = now()`, Ordinal, CodeHash())
		return err
	}
}

func planCode(ctx context.Context, db Querier) (Change, error) {
	c := Change{Part: "code", Version: Ordinal, Name: "sql/" + codeFiles()[0] + " and " + fmt.Sprint(len(codeFiles())-1) + " more"}
	var there bool
	if err := db.QueryRow(ctx, "select to_regclass('pgmill.build') is not null").Scan(&there); err != nil || !there {
		return c, err
	}
	rows, err := db.Query(ctx, "select ordinal, hash from pgmill.build")
	if err != nil {
		return c, err
	}
	type build struct {
		Ordinal int
		Hash    string
	}
	have, err := pgx.CollectRows(rows, pgx.RowToStructByPos[build])
	if err != nil {
		return c, err
	}
	rights, err := granted(ctx, db)
	c.Applied = slices.ContainsFunc(have, func(b build) bool {
		return b.Ordinal > Ordinal || b.Ordinal == Ordinal && b.Hash == CodeHash() && rights
	})
	return c, err
}

// granted reports whether the roles and rights of sql/views/900_grants.sql are in
// place. They are not after a restore where the roles did not exist, or without
// privileges: either loses all of a role's at once, so one of each role's is looked at,
// and what everybody may do who should not.
func granted(ctx context.Context, db Querier) (all bool, err error) {
	err = db.QueryRow(ctx, `
		select not exists (
		  select from unnest(array['mill_reader', 'mill_emitter', 'mill_operator', 'mill_approver', 'mill_worker',
		                           'pgmill_runtime', 'pgmill_api', 'pgmill_cleanup', 'mill_cleaner', 'mill_module']) name
		   where not exists (select from pg_roles r, pg_namespace n, aclexplode(n.nspacl) a
		                      where r.rolname = name and n.nspname = 'mill' and a.grantee = r.oid))
		   and not exists (
		  select from pg_proc p join pg_namespace n on n.oid = p.pronamespace,
		         aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
		   where n.nspname = 'mill' and a.grantee = 0)`).Scan(&all)
	return all, err
}
