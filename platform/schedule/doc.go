// Package schedule emits the ticks of schedules: one event of type schedule.<name>
// for each fire time, whose handler is a subscription of that name. It owns the
// table schedule, imports platform and internal/db, and does not know who handles
// ticks: exactly-once handling, retries and parking are the subscription's.
//
// # When a schedule fires
//
// platform.Cadence is the pure function from a time to the next fire time. Five
// fields are local times of the zone, and each of them comes once:
//
//   - Where the clock is set forward, a time that it never shows fires at the first
//     instant after the gap: 02:30 in New York on 8 March 2026 at 07:00Z, midnight in
//     Santiago on 6 September at 04:00Z. Two times in one gap are one instant.
//   - Where it is set back, a time that it shows twice fires the first time: 01:30 in
//     New York on 1 November 2026 at 05:30Z only.
//   - A line that names every hour is meant as an interval: it fires whenever the
//     clock shows a matching minute, so each real half hour for */30 * * * *, and
//     nothing is made up for what a gap leaves out.
//
// The library's parser is used, and its search on wall times written as UTC; its own
// way with zones skips the gap for a whole day, fires twice in the repeated hour, and
// gives up after five years, which 29 February needs eight of. A line that never
// fires, an interval below a second and an unknown zone are refused at registration.
// @every counts from the first declaration; a pause does not shift it.
//
// Zones come from the machine's zone files, else from the copy in the binary. Hosts
// with different ones may disagree about a fire time to come; whoever fires last has
// reckoned it, and it fires once. The database's own zone files are never asked.
//
// # Why each fire time is emitted once
//
// The row holds the cron line, next_at and a version. A host that has the function
// reads due rows, reckons in Go what to emit and which time follows, and hands both
// to one statement, fire_schedules. That locks the row, goes on only if the version
// is the one that was read, inserts the events, and writes next_at and a new version:
// one transaction. Of two hosts with the same row the later one finds the row locked
// or another version, and does nothing. A host that dies before the commit has done
// nothing; after it, the tick is an event like any other. fired_to is a second wall:
// no fire time up to it is emitted again, also when a changed line or a clock that
// was set back names it once more. Due is what the database's clock says.
//
// A host without the function emits nothing: fire times that pass while no host has
// it are missed, and Missed says what becomes of them. One that is at most 30 s late
// was not missed. A changed line takes effect with the first host that declares it,
// once, with an audit row; hosts of the version before fire by the row, never by
// their code. While two versions start and stop, the last to start decides.
//
// A row that cannot be read (changed by hand) stops with reason bad_schedule; the
// others go on, and the next declaration mends it.
//
// # What it costs
//
// pgmill.tick, which each host calls at each poll anyway, answers when the next
// schedule is due, by one index probe: nothing due costs no statement of its own. The
// subscription of a schedule whose ticks are done is dormant, and passed over by the
// poll and by advancing cursors, until the transaction that emits the next tick wakes
// it with its cursor at the head. An overdue schedule that no host has costs each
// poll one more probe; pause it.
//
// Types under schedule. are reserved: mill.emit, mill.emit_many and platform.Emit
// refuse them with MI001. The host's own role can write events as it can anything.
package schedule
