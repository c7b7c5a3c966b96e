// Package outbox is the log: committed events in one order, position to event, the
// same for everybody. Cursors, streams and timelines are one bigint because of it. It
// owns the tables event, event_key, log and step, whose code is in sql/functions
// (advance, look, emit), and imports internal/db only.
//
// Why a position is lost for nobody and held back by nobody. An event row carries
// the id of its top-level transaction. The chain of steps is a chain of snapshots,
// each newer than the one before: the lock is taken in one statement, and the
// snapshot in a later one, which under read committed is newer than whatever the
// last holder of the lock has committed. A step gives positions to the events whose
// transaction is visible in its snapshot and was not in the last one's. Visibility
// only ever goes from no to yes, so each committed event falls between two
// neighbours of the chain exactly once, whenever its transaction began, committed or
// drew its id; a transaction that is still open, prepared or another database's is
// merely not visible, and nothing waits for it. Two hosts cannot take one step: the
// step's number is a primary key.
//
// Why keys keep their order. If A had committed when B was emitted, every snapshot
// that sees B sees A: A is in an earlier step, or in the same one with the lower id.
// Hence order by id inside a step; by transaction id it would be wrong, for that is
// drawn at the first write, long before the lock of the key perhaps.
//
// After a restore into another cluster transaction ids start anew. The step carries
// the cluster's identity: when it differs, or when the snapshots run backwards, the
// log gets what it lacks by an anti-join, an audit row says so, and events up to the
// highest id of that moment are from then on looked up before they are let in.
//
// Why a crash passes nobody by. A look commits without waiting for the disk, so a
// crash of the server can take its positions back, the last of them and none before;
// what was committed is then given positions anew, perhaps others. A cursor that was
// settled on them is safe: its commit flushed what came before it, the look's too. A
// host that has only read up to them is not, and it cannot go by the head, which may
// be as far again by the time it asks, nor by its connection, which its pool replaces
// without a word, nor by the server's start time, which a crash of one backend leaves
// as it is. So the database counts its lives in an unlogged table, which recovery
// empties, and which a standby that is promoted finds empty, too. Who opens a shard
// reads the row, or writes one if there is none; the version that shard_version answers
// has it mixed in, and a holder that finds another version opens the shard anew, at
// the settled cursor. From there on it is one session: a transaction that began in
// this life cannot commit in the next. What settles in a transaction of its own what
// was read in an earlier one (an idle holder's move, a park, a release) asks for the
// version first. It costs one lookup in one page a batch. A head that a host knows
// from the life before is only a hint: check_head refuses to read as far until the log
// is as long.
//
// The model in platform/outbox/model runs all this against writers, kills and
// mutants.
package outbox
