// Package pgbouncer runs a PgBouncer in transaction mode in front of a test's
// Postgres: each user logs in as himself, to any database. It ends with the process
// that started it, however that ends. It imports nothing of ours, owns nothing, and is
// imported by tests only.
package pgbouncer
