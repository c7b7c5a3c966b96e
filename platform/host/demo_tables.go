package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The demo keeps to two schemas: pgbench's tables are in pgmill_demo, so that a
// user's own pgbench tables are out of reach, and what the subscription writes is in
// demo. `drop schema pgmill_demo, demo cascade` removes it.
const (
	demoFunction = "demo.branch_balance"
	demoEvent    = "pgbench.transfer"
	demoSchema   = "pgmill_demo"
	demoMark     = "made by host demo of pgmill"
)

var errNotDemos = errors.New("not made by host demo: it stays as it is; rename or drop it, or name another database")

// demo is the demo's tables in one database.
type demo struct {
	pool    *pgxpool.Pool
	pgbench pgbench
	// lonely, if set, is called when no live host has the subscription.
	lonely func()
}

// The table of functions/demo. Its author's host makes it, not its handler: the
// runtime role has no DDL.
const demoBalanceTable = `
create schema if not exists demo;
create table if not exists demo.branch_balance (
	bid     int    primary key,
	balance bigint not null
);
comment on table demo.branch_balance is '` + demoMark + `';
grant usage on schema demo to pgmill_runtime, mill_reader;
grant select, insert, update, delete on demo.branch_balance to pgmill_runtime;
grant select on demo.branch_balance to mill_reader;`

// One event a transfer, in the transfer's own transaction.
const demoTrigger = `
create function pgmill_demo_new.emit_transfer() returns trigger
language plpgsql
as $$
begin
	perform mill.emit('` + demoEvent + `', 'branch/' || new.bid,
	                  data => jsonb_build_object('teller', new.tid, 'account', new.aid, 'delta', new.delta));
	return null;
end $$;
create trigger emit_transfer after insert on pgmill_demo_new.pgbench_history
	for each row execute function pgmill_demo_new.emit_transfer();`

// Is what is there ours, is the table of balances there, are pgbench's?
const demoFoundQuery = `
select coalesce(obj_description(to_regclass('demo.branch_balance'), 'pg_class') = $1, to_regclass('demo.branch_balance') is null)
   and (select coalesce(bool_and(obj_description(n.oid, 'pg_namespace') is not distinct from $1), true)
          from pg_namespace n where n.nspname in ('pgmill_demo', 'pgmill_demo_new')),
       to_regclass('demo.branch_balance') is not null,
       to_regclass('pgmill_demo.pgbench_branches') is not null`

// Stray: pgbench has moved money and no balance is known, as after a dropped schema.
const demoScaleQuery = `
select (select count(*) from pgmill_demo.pgbench_branches),
       exists (select from pgmill_demo.pgbench_history) and not exists (select from demo.branch_balance)`

// prepare makes what is missing, and pgbench's tables anew if they are too small or
// anew is asked for. It returns their scale. Several processes may call it at once.
func (d *demo) prepare(ctx context.Context, scale int, anew bool, show func(demoLag)) (have int, err error) {
	err = pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `set local idle_in_transaction_session_timeout = 0`)
		if err == nil {
			_, err = tx.Exec(ctx, `select pg_advisory_xact_lock(1886219628, hashtext('demo'))`)
		}
		if err != nil {
			return fmt.Errorf("wait for another demo: %w", err)
		}
		var ours, balances, tables, stray bool
		if err := d.pool.QueryRow(ctx, demoFoundQuery, demoMark).Scan(&ours, &balances, &tables); err != nil {
			return fmt.Errorf("look for the demo's tables: %w", err)
		}
		if !ours {
			return fmt.Errorf("schema %s or table demo.branch_balance: %w", demoSchema, errNotDemos)
		}
		if !balances {
			if _, err := d.pool.Exec(ctx, demoBalanceTable); err != nil {
				return fmt.Errorf("make demo.branch_balance: %w", err)
			}
		}
		if tables {
			if err := d.pool.QueryRow(ctx, demoScaleQuery).Scan(&have, &stray); err != nil {
				return fmt.Errorf("look into the demo's tables: %w", err)
			}
		}
		if have >= scale && !anew && !stray {
			return nil
		}
		have = scale
		return d.replace(ctx, tx, scale, tables, show)
	})
	return have, err
}

// replace makes pgbench's tables under another name and puts them in place in tx,
// together with balances of zero: nobody ever sees them without their trigger. The
// locks are taken in the order of pgbench's own statements; under them every
// transfer has been committed, and is waited for.
func (d *demo) replace(ctx context.Context, tx pgx.Tx, scale int, old bool, show func(demoLag)) error {
	_, err := d.pool.Exec(ctx, `
		drop schema if exists pgmill_demo_new cascade;
		create schema pgmill_demo_new;
		comment on schema pgmill_demo_new is '`+demoMark+`'`)
	if err != nil {
		return fmt.Errorf("make schema %s: %w", demoSchema, err)
	}
	next := d.pgbench
	next.schema = "pgmill_demo_new"
	if err := next.initialize(ctx, scale); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, demoTrigger); err != nil {
		return fmt.Errorf("make the trigger on pgbench_history: %w", err)
	}
	if old {
		for _, table := range []string{"accounts", "tellers", "branches", "history"} {
			if _, err := tx.Exec(ctx, `lock table pgmill_demo.pgbench_`+table); err != nil {
				return fmt.Errorf("lock the old pgbench_%s: %w", table, err)
			}
		}
	}
	if err := d.untilHandled(ctx, show); err != nil {
		return fmt.Errorf("transfers of before must be handled first: %w", err)
	}
	_, err = tx.Exec(ctx, `
		drop schema if exists pgmill_demo cascade;
		delete from demo.branch_balance;
		alter schema pgmill_demo_new rename to pgmill_demo`)
	if err != nil {
		return fmt.Errorf("put the demo's tables in place: %w", err)
	}
	return nil
}
