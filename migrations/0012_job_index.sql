-- Small indexes. Two for jobs with a key, which nothing else is in: what runs of a key,
-- and what of it was let back into its lane; without them each look at one key reads all
-- that runs and all that waits beside it. And one of refused changes of the
-- configuration, which are few among much audit. An old host looks by them, too.

-- +goose NO TRANSACTION
-- +goose Up

create index concurrently if not exists river_job_key on pgmill.river_job (kind, (args ->> 'scope'), (args ->> 'key')) where args ? 'key';
create index concurrently if not exists job_waiting_again on pgmill.job_waiting (key, scope) where key is not null and due_at is null and starts_with(demand, '^');
create index concurrently if not exists audit_rejected on pgmill.audit (action, at) where action in ('pools_rejected', 'timeouts_rejected');
