// Package fault breaks what stands between a test and its Postgres: a proxy to cut,
// to freeze or to slow down, and a server of the test's own to pause, to kill and to
// keep away. It imports pg, pgtest and pgbouncer, and is imported by tests only.
package fault
