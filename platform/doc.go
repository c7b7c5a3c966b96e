// Package platform is what a function's author imports: the kinds of functions,
// Register, Emit, Enqueue, events, reasons and errors. It owns no table and imports no
// other package of the module: Emit calls mill.emit and Enqueue mill.submit_job, so SQL
// is the seam.
//
// A function is declared as data with one handler. What the handler writes through
// its tx commits together with the cursor or the job's end, or not at all, so in
// Postgres its effect happens exactly once. Work outside Postgres may be repeated after
// a crash.
//
// A Subscription listens to events; a Schedule to its own ticks, which are events too;
// a Cleanup deletes what is kept for long enough, at the ticks of a schedule; a Step does
// the jobs of one topic, which Enqueue submits. A Module gives functions tables of their
// own and a role that can write no others.
package platform
