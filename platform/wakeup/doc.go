// Package wakeup says "there may be work", never what. It owns no table and imports
// no package of the module.
//
// An emitting transaction rings at its commit (sql/functions/020_emit.sql) while the
// bell is armed, and a host looks at once. When bells come often (120 in a second, 30
// if it was busy just before) it hushes emitters for 200 ms at a time, looks meanwhile,
// and rings the other hosts itself, at most 25 times a second. When fewer than 120 events
// a second come it arms the bell, looks once more, and then after 1, 2, 4 … ms up to the
// poll, for those who emitted in silence and have not committed yet. So it does at its
// start, when it was rung for nothing, and while LISTEN is not heard. Where nobody was silent
// everybody rings for himself, and a look that a bell was right about needs no other.
// A bell of jobs is answered by asking for jobs, and 5 ms later for cancels; nobody looks.
// A crowd of them is met as a crowd of emitters is.
//
// The bell is a sequence, pgmill.bell: the event id up to which emitters ring, some
// thousands ahead, or a time until which they are silent, as a negative number. It is
// read inside the insert for the price of a buffer access, set without a lock, and
// runs out by itself when hosts die. This stands
// where a deferred trigger and an advisory lock would do the same at each commit:
// measured, the trigger alone costs half as much as the insert. What it gives up is
// that the choice falls at the emit and not at the commit; a host that goes to sleep
// in between looks after 1, 2, 4 … ms, so an event waits at most about as long as
// its transaction was open.
//
// Whether LISTEN is heard is measured, not configured: a nonce is sent to oneself
// at the start and every 30 s. While it does not come back the host polls ten times
// a second. The poll alone is enough for everything.
package wakeup
