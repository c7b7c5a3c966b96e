// Package lease says who is alive. One process has one lease under a fresh id; it
// is renewed each third of its ttl whatever the process works on, and live is a
// verdict at reading time by the database's clock (T1-T8). A process that could not
// renew for one ttl cancels its own work, counting by the monotonic clock from
// before the renewal was sent. It owns the tables instance and instance_function
// and imports internal/db only.
package lease
