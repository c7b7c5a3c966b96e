// Package subscription runs functions with a durable cursor: shards, batches,
// retries, parking, replay of a key. It owns the tables subscription, shard,
// cursor, parked_key and parked_event and imports outbox, internal/claim,
// internal/lease and internal/db.
//
// A host that has the claim of a shard holds it while events come (a warm claim),
// lingers for two seconds, and gives it back after thirty if other hosts live. Each
// batch is one transaction: read, handler, cursor, fence, commit, the read and the
// settle one round trip each. It is optimistic: on any failure it is rolled back,
// the events before the failing one run again as a batch, then the failing one
// alone.
//
// Two walls keep a stale holder out. The cursor is appended with the next n, so of
// two holders that read the same n one fails; and the fence, the last statement
// before the commit, locks the claim's row or says that it is gone. A shared lock
// rather than the delete of a settled claim, because a warm claim outlives a batch;
// the delete comes when the claim is given back.
//
// Attempts count calls of the handler on an event, the call inside a batch among
// them, and deaths of a host while the event was noted. Failures that are the
// database's or another transaction's (a lost connection, a deadlock) do not count,
// unless they come five times in a row: then the handler is the reason.
// A held event that failed by itself is tried again each five minutes, so that a
// mended handler goes on unattended; one that killed hosts is not.
//
// A subscription may be dormant: nothing it listens to has been emitted since its
// cursors, which is known of those whose events only one engine emits (the ticks of
// schedules). It is passed over until pgmill.wake, in the transaction that emits, or
// an operator's pgmill.touch. Its shard is given back soon after a tick: thousands
// may be due at once, and few of them again soon.
package subscription
