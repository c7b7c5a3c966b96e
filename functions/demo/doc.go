// Package demo keeps each branch's balance from the transfers that pgbench makes
// (`host demo`): one event a transfer, each delta added once, so that the balances
// equal pgbench's own at any moment that nothing waits. It writes the table
// demo.branch_balance(bid, balance), which `host demo` makes together with the
// trigger that emits; without that nothing emits these events and it has nothing to
// do. It imports platform and pgx only, as any team's function would.
package demo
