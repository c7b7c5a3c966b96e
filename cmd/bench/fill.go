package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// fillSession makes a backlog quickly: no flush for each of its commits, and no
// bell, since triggers do not fire in it. What it leaves is the same.
var fillSession = map[string]string{"synchronous_commit": "off", "session_replication_role": "replica", "pgmill.quiet": "on"}

// fill commits n events to pgmill.event or hand_event, in transactions of size, by
// SQL. Partitions are made on the way, as hosts do.
func fill(ctx context.Context, dsn, table string, n, size int) error {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return err
	}
	for name, value := range fillSession {
		cfg.RuntimeParams[name] = value
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer conn.Close(ctx) //nolint:errcheck // nothing is lost
	const portion = 1_000_000
	for done := 0; done < n; done += portion {
		if _, err := conn.Exec(ctx, "select pgmill.make_partitions()"); err != nil {
			return err
		}
		_, err := conn.Exec(ctx, fmt.Sprintf(`
			do $$
			begin
			  for lo in %[2]d .. %[3]d by %[4]d loop
			    insert into %[1]s (type, target, data)
			    select '%[5]s', 'order-' || i, jsonb_build_object('order', i, 'amount', i %% 1000)
			      from generate_series(lo, least(lo + %[4]d - 1, %[3]d)) i;
			    commit;
			  end loop;
			end $$`, table, done, min(done+portion, n)-1, size, ordersPlaced))
		if err != nil {
			return fmt.Errorf("fill %s: %w", table, err)
		}
	}
	return nil
}

// position gives every event that was filled its place: head comes to be at least
// upto. A host may take part.
func position(ctx context.Context, conn *pgx.Conn, upto int) error {
	for {
		var head int
		if _, err := conn.Exec(ctx, "select pgmill.advance()"); err != nil {
			return err
		}
		if err := conn.QueryRow(ctx, "select pgmill.head()").Scan(&head); err != nil {
			return err
		}
		if head >= upto {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// backlog leaves n events in the log that nobody has read, in settled tables.
func backlog(ctx context.Context, dsn string, n int) error {
	if err := fill(ctx, dsn, "pgmill.event", n, 10); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx) //nolint:errcheck // nothing is lost
	if err := position(ctx, conn, n); err != nil {
		return err
	}
	for _, q := range []string{"vacuum analyze pgmill.event", "vacuum analyze pgmill.log", "checkpoint"} {
		if _, err := conn.Exec(ctx, q); err != nil {
			return err
		}
	}
	return nil
}
