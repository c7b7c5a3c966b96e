// Package job runs steps: it claims jobs that may run now, calls their handlers and
// settles how each attempt ended. It owns the tables job, job_*, lane, topic and
// dead_letter and imports internal/claim and internal/db.
//
// A job is a row of truth and, while it waits, a row that waits. Admission
// (sql/functions/110_job_admit.sql) is one step that an able host or worker asks for
// when it has room: it decides what may run now, in which order, and makes the claims,
// born running. There is no claim that nobody has, so the states SCHEDULED and
// DISPATCHED never show: a job that could run and has no one to run it is PENDING, with
// a reason in mill.why_not_running. This is one write and one round trip less than a
// claim that waits for its fetch, and limits and turns are decided when the work
// starts and not before.
//
// RUNNING is not stored either: it is what a claim says of a job whose row is PENDING,
// so that a start writes the claim and no job. To the guard of the ends (migration 8)
// PENDING to SUCCEEDED is therefore how a running job succeeds; that a job without a claim
// does not is the fence's doing. DENIED comes from the waiting states alone: a policy is
// asked before each attempt, and none takes an attempt back.
//
// Who may run what: the configuration maps topics to pools, and hosts and workers say when
// they come which pools they are of and which labels they have. Who names pools has jobs of
// the topics that go to them; a worker need not name topics then. Who names none has its
// topics wherever they go, but nothing that prefers a pool or requires what one offers: it
// is of no pool. A placement is met by labels alone, and ordinary labels of a job ask for
// nothing.
//
// Load is spread by who asks: who has room does, for at most its free slots, and whoever is
// full does not, so a backlog fills every host and no report of load can be stale (C31). A
// burst that one host has room for may all be its own; a smaller MaxJobs spreads it. What
// runs is counted from claims. For the same reason a job waits for its preferred worker
// while that one is full.
//
// An attempt ends in one statement (pgmill.end_claims), fenced by the delete of the
// claim: of a Handle in the handler's own transaction, of many Runs together in one.
// What a failure means (rest, dead letter) is decided there, alike for hosts, outside
// workers and the rescue. A job with which hosts died twice is admitted singly by each
// host, so that a killer takes no more than its neighbours' first attempts with it.
//
// Cancel ends the job at once; who runs it hears of it by the bell or the poll, and
// what it still says is noted as late_result and changes nothing (of outside workers by
// mill.late_job, which the HTTP route calls for them).
package job
