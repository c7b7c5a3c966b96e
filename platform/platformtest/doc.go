// Package platformtest tests functions and hosts on a real Postgres: a database per
// test, one function on one event, a host in the test's process, and waiting for a
// row without sleeping. At the end of each test it checks what must always hold:
// each committed event has one position, no cursor is ahead, no session of ours
// idles in a transaction. T makes an Example of what a test does. It imports pgtest, pg, host and what is below them, owns
// nothing, and is imported by tests only.
package platformtest
