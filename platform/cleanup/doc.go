// Package cleanup runs clean-ups: at each tick of its schedule it deletes what a rule
// names, batch by batch. It owns the tables retention and archive and the statements of
// the archive, imports platform and internal/db, and exports Builtin, the clean-ups of
// what pgmill itself leaves behind.
//
// # What may go, and who says so
//
// What can be cleaned is a class: one entry of pgmill.cleanup_classes (sql/functions/
// 070_cleanup.sql), which names tables, the condition under which a row is old, what
// still keeps it, and whether an organization may clean its own (N79, N80). How long rows
// are kept is data: pgmill.retention, written when a host starts, from the profile's
// manifest, else from the declaration. A rule that is not there, a scope that is not the
// rule's and a time below the class's own minimum are refused: nothing is deleted.
//
// Each batch runs as the role pgmill_cleanup, which has DELETE on the tables of classes
// and on nothing else (N81): an entry that is wrong cannot reach an event, a cursor, an
// audit row. Tables that are new are in no class until somebody puts them there.
//
// A clean-up of a team's own tables is a statement of its own (platform.Rule.Delete). That
// of a module runs as the module's role, as its handlers do, so the module's tables are
// all that it reaches. That of no module runs as mill_cleaner, which has no right but
// those that the owner of the tables grants it. Not as the host, as other handlers without
// a module do: hosts may delete cursors and jobs, and where they are a superuser's
// everything. Nor as pgmill_cleanup: a class's rows that are not done yet are kept by the
// class's condition, which a statement has not.
//
// # Batches
//
// A batch is a transaction of at most 1,000 rows of one scope (N78, N82). It takes a
// transaction-level advisory lock by class and scope, so that there is one cleaner at a
// time; whoever finds it taken is done. Rows that somebody has locked are passed over. A
// statement that deleted more than a batch is rolled back: batch_too_big.
// Batches commit one by one on a connection of their own while the tick's transaction,
// which has written nothing and holds no snapshot, waits: a host that dies in between
// loses one batch, and the tick is tried again. After half of its timeout a tick is done
// with what it has; the next one goes on. So a clean-up never takes more than its share,
// and its effects, being deletes of what is old anyway, may be repeated.
//
// # The archive
//
// Events, their order and the audit are canonical and no clean-up touches them. Events
// leave only by host events archive, which is the owner role's: pgmill.begin_archive,
// archive_batch and drop_archived (sql/functions/071_archive.sql), each restartable.
package cleanup
