// Package pgtest gives tests a Postgres: one throw-away server for all test
// binaries of one `go test ./...`, and in it a database for each test, cloned
// from a template that is migrated once. It imports pg only for the private
// server, and knows nothing of migrations.
//
// A database of our own takes few lines here because they do what ready-made
// helpers do not: passwords stay out of the test's output, sessions that a test
// forgot do not keep the database, and what killed tests left behind goes away.
package pgtest
