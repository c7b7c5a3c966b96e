// Package migrations is the state of a database: goose files, forward only,
// numbered, never edited once on main. It imports nothing.
package migrations

import "embed"

// FS holds every migration.
//
//go:embed *.sql
var FS embed.FS
