// Package claim is the one piece of concurrency: a River client that hands out the
// right to work on something now, and the walls that keep a stale owner out. It
// imports internal/lease and internal/db; River's tables are its only ones.
//
// What River is allowed to do is in river.go: fetch rows of the kinds this host
// knows. Claims are inserted, rescued and ended by our own SQL (sql/functions): a
// claim is claimed at most once, its id is the fence, and River's own completion
// never writes. River has no leader, no rescuer, no scheduler and no listener here.
package claim
