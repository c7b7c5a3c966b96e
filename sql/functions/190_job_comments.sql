comment on function mill.submit_job(text, jsonb, jsonb) is
  'Submits a job in the caller''s transaction and returns its id. Options: scope, priority, delay_ms, run_at, deadline_ms, max_runtime_ms, max_queue_wait_ms, max_attempts, cost, key, unique_key, debounce_ms, idempotency_key, labels, placement, requires, preferred_pool, preferred_worker, trace_id (else the setting pgmill.trace_id). Refuses with MI001 form, MI002 size, MI004 key reused.';
comment on function mill.submit_jobs(jsonb) is
  'Submits an array of {topic, input?, …options}, at most 10000, all or nothing. outcome is accepted, merged (into the job returned) or rejected (reason says why).';
comment on function mill.cancel(text, text) is 'Cancels a job that has not ended; answers its state. The reason has a dot, or is cancelled. What runs is told; what it still says changes nothing.';
comment on function mill.claim_jobs(text, text[], int, int, text[], jsonb) is 'Claims jobs for a worker of any language, for lease_secs from each renewal: of these topics, or of all that go to its pools. What a job asks for, pools and labels must meet. The token is the right to end them. Refused in a transaction that is not READ COMMITTED.';
comment on function mill.renew_jobs(text[], text[]) is 'Renews leases. cancelled: the job was cancelled or the lease is lost; stop and drop its result.';
comment on function mill.progress_job(text, text, int, text) is 'Says how far a claimed job is.';
comment on function mill.complete_job(text, text, jsonb) is 'Ends a claimed job well, with its output, at most 32 MiB; above 256 KiB the job points to it. That it is of the topic''s output schema is checked by the HTTP route alone. MI101 if the lease is lost.';
comment on function mill.fail_job(text, text, text, boolean) is 'Ends an attempt of a claimed job with a reason code, which has a dot or is one of those that tell of the work itself; it is tried again unless retry is false or its attempts are spent. MI101 if the lease is lost.';
comment on function mill.release_job(text, text) is 'Gives a claimed job back; the attempt does not count. MI101 if the lease is lost.';
comment on function mill.late_job(text, text) is 'Notes that a result came too late: for who was refused with MI101, in a transaction of its own. It changes nothing. False: there is nothing to note.';
comment on function mill.retry_dead_letter(text, text) is 'Submits a dead letter again as a full clone, which points back to it; answers the clone''s id, the same one when asked again. While a live job has its unique_key it answers that one, and the letter stays.';
comment on function mill.delete_dead_letter(text, text) is 'Deletes a dead letter; the job stays as it ended. False: there is none.';
comment on function mill.limit_scope(text, int, float8, text) is 'Sets what one scope may have running at once (null: no limit) and its weight among the others.';
comment on function mill.set_pools(jsonb, text) is 'Sets which topics go to which pools and what pools offer; an invalid document is refused with MI001 and changes nothing. Answers the version.';
comment on function mill.put_blob(bytea, jsonb) is 'Stores at most 32 MiB in the caller''s transaction and answers a pointer. Options: content_type, scope, trace_id, retention: short (a day), standard (7), audit (30).';
comment on function mill.blob(text) is 'What there is at a pointer: whose, what, how large, its hash, until when; nulls if there is none (any more).';
comment on function mill.read_blob(text, bigint, int) is 'A piece of what is at a pointer, from a byte on; empty at its end, null if there is none.';
comment on function mill.set_timeouts(jsonb, text) is 'Sets how long jobs of topics may run and wait and how often they are retried, where they do not say; an invalid document is refused with MI001, each fault by its path, and changes nothing. Answers the version.';
