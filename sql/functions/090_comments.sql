-- Every function of the contract says what it does.
comment on function mill.emit(text, text, text, jsonb, text, jsonb) is
  'Records one event in the caller''s transaction and returns its id. Options: idempotency_key, trace_id (else the setting pgmill.trace_id). Refuses with MI001 charset, MI002 size, MI003 not a pointer, MI004 key reused.';
comment on function mill.emit_many(jsonb) is
  'Records an array of events {type, target, key?, data?, scope?, idempotency_key?, trace_id?}, all or nothing, and returns their ids in order.';
comment on function mill.pause_subscription(text, text) is 'Stops a subscription after the transaction at hand.';
comment on function mill.resume_subscription(text, text) is 'Ends a pause; a held or retrying shard gets a fresh set of attempts now.';
comment on function mill.hold_subscription(text, int, text) is 'Stops retrying the failing event of a shard until resume, park or drop.';
comment on function mill.park_subscription(text, int, text) is 'Sets the failing event of a shard and its key aside; the shard goes on.';
comment on function mill.drop_event(text, int, bigint, text) is 'Drops the failing event of a shard, or one parked event by position: it will not be handled.';
comment on function mill.unpark(text, text, text) is 'Replays a parked key, or all of them, until it meets the cursor.';
comment on function mill.move_subscription(text, text, text) is 'Moves all cursors of a subscription: to now, zero, a position or a time; back only if it is declared Replayable.';
comment on function mill.replay_subscription(text, text, text) is 'Has a subscription that is declared Replayable handle events again: from zero, a position or a time that lies behind all its cursors, so that nothing is skipped.';
comment on function mill.reshard_subscription(text, int, text) is 'Changes how many shards a subscription has, once all are at one position; each key stays in order.';
comment on function mill.pause_schedule(text, text) is 'Stops a schedule: no fire time fires until resume. Ticks emitted before are still handled.';
comment on function mill.resume_schedule(text, text) is 'Ends a pause: the next fire time fires; those that passed during the pause do not.';
comment on function mill.trigger_schedule(text, text) is 'Emits a tick of a schedule now, also of a paused one; its fire times stay as they are.';
