-- name: RetentionDeclare :exec
select pgmill.declare_retention(@rules::jsonb);

-- name: CleanupScope :one
-- The next scope to clean; empty: there is none.
select coalesce(pgmill.next_scope(@name, @after), '')::text;

-- name: CleanupRole :exec
-- Until the end of the transaction.
select set_config('role', @role::text, true);

-- name: CleanupBatch :one
select pgmill.clean(@name, @of_scope)::int;

-- name: CleanupTurn :one
-- One cleaner at a time, until the end of the transaction; see pgmill.clean.
select pg_try_advisory_xact_lock(1886219629, hashtext(@what::text))::boolean;
