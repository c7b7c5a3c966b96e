// Package sql is the code that lives in the database: the functions and views of
// schemas pgmill and mill, put in place by platform/pg after the migrations.
// It imports nothing.
package sql

import "embed"

// FS holds functions/*.sql and views/*.sql, applied in this order, each by name.
//
//go:embed functions/*.sql views/*.sql
var FS embed.FS
