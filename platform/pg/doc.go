// Package pg opens and migrates the database and, where a profile allows it, runs
// a private Postgres. Migrations are state (goose, forward only, River's among
// them); functions and views are code, put in place by ordinal so that an older
// host never puts an older view back. A module's tables are migrated in the same way,
// into its schema (platform.Module). It imports platform, migrations and sql only.
//
// Migrators take turns by a transaction-level advisory lock in a transaction of
// its own rather than by goose's session or table lockers: River's migrations need
// the same turn, and the lock dies with its process without a lease to wait out.
package pg
