// Command bench measures the commit path against River, hand-written SQL and other
// systems, on one Postgres with fsync and synchronous_commit on. It owns nothing:
// it makes and drops two databases, pgmill_bench_template and pgmill_bench_run, on
// the server of PG_DSN or on a private one of its own.
//
//	bench all                      every comparison; about 25 minutes on two cores
//	bench quick                    the same at a tenth of the size, one round
//	bench soak                     twenty minutes beside an old snapshot
//	bench run -r 3 emit:business emit:hand emit:pgmill_quiet,c=64
//	bench list                     scenarios, parameters, comparisons and goals
//	bench table FILE...            the table again, from JSON lines
//
// # How to read the figures
//
// The runs of a comparison are taken in turns, A B C A B C, each in a process and
// a database of its own. "of base" is the median of the ratios taken pair by pair
// within a round, because a machine drifts by more than the ratios differ: compare
// ratios of one table, never rates of two tables. min..max beside it is the
// spread; a goal counts as met by the median.
//
// "CPU µs client / all" is CPU time for each operation: of this process (which for
// pgmill is emitter and host), and of the whole machine. Where client and server
// share two cores, that is what the rate comes from. "foreign" is the share of the
// machine that neither the run nor its server used, the worst of the runs; a run
// above --noise is kept in the file as rejected and repeated, up to twice.
//
// Latencies are from commit returned to handler started, call_ ones from commit
// called. Rates of a subscription count from the first handler call to the last,
// the same way for pgmill and for loops by hand. notifies_s is what a session that
// listens has heard. rss_mb is the most the process ever had resident.
//
// What the hand-written peers are: hand is one insert into a plain table with the
// columns and indexes of pgmill.event; log is a loop on pgmill's own log and event
// tables; outbox is a loop on that plain table behind the oldest running
// transaction. They have no checks, no leases, no retries, no wakeup.
package main
