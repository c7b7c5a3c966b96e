-- All of these run as pgmill_api, with the caller's scope set in the same batch
-- (platform/api/scope.go).

-- name: APISubmit :one
select s.job_id::text as job_id, s.trace_id::text as trace_id, s.outcome::text as outcome, coalesce(s.reason, '')::text as reason from pgmill.api_submit(@item::jsonb) s;

-- name: APITopicInput :one
select coalesce(pgmill.topic_input(@topic)::text, '')::text as schema;

-- name: APIJobOutput :one
select coalesce(pgmill.job_output(@id, @token)::text, '')::text as schema;

-- name: APIKnownTopics :many
select k::text as topic from pgmill.known_topics(@topic, @scope) k;

-- name: APIListJobs :many
select r::jsonb as record from pgmill.list_jobs(@filter::jsonb, @size::int) r;

-- name: APIGetJob :one
select coalesce(pgmill.get_job(@id), 'null')::jsonb as record;

-- name: APITrace :many
select r::jsonb as record from pgmill.trace_jobs(@trace) r;

-- name: APICancel :one
select mill.cancel(@id, sqlc.narg(reason)::text)::text as state;

-- name: APIListDeadLetters :many
select r::jsonb as record from pgmill.list_dead_letters(@filter::jsonb, @size::int) r;

-- name: APICountDeadLetters :many
select c.reason_code::text as reason_code, c.topic::text as topic, c.count::bigint as count from pgmill.count_dead_letters() c;

-- name: APISweepDeadLetters :many
select s.job_id::text as job_id, s.retried_as::text as retried_as from pgmill.sweep_dead_letters(@filter::jsonb, @retry::boolean, @size::int) s;

-- name: APIRetryDeadLetter :one
select r.job_id::text as job_id, r.outcome::text as outcome, coalesce(r.reason, '')::text as reason from pgmill.retry_letter(@id, null) r;

-- name: APIDeleteDeadLetter :exec
select mill.delete_dead_letter(@id);

-- name: APIClaim :many
select c.job_id::text as job_id, c.token::text as token, c.topic::text as topic, c.input::jsonb as input, c.attempt::int as attempt,
       coalesce(to_char(c.deadline_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), '')::text as deadline_at
from mill.claim_jobs(@worker, @topics::text[], @n::int, @lease_secs::int, sqlc.narg('pools')::text[], sqlc.narg('labels')::jsonb) c;

-- name: APIListWorkers :many
select w::jsonb as record from pgmill.list_workers(@after, @size::int) w;

-- name: APIRenew :many
select r.job_id::text as job_id, r.cancelled::boolean as cancelled from mill.renew_jobs(@ids::text[], @tokens::text[]) r;

-- name: APIProgress :exec
select mill.progress_job(@id, @token, @percent::int, sqlc.narg(message)::text);

-- name: APIComplete :one
select mill.complete_job(@id, @token, @output::jsonb)::text as state;

-- name: APIFail :one
select mill.fail_job(@id, @token, @reason, @retry::boolean)::text as state;

-- name: APIRelease :one
select mill.release_job(@id, @token)::text as state;

-- name: APILate :exec
select mill.late_job(@id, @token);

-- name: APIGetDocument :one
select pgmill.get_document(@name)::jsonb as record;

-- name: APISetDocument :one
select pgmill.set_document(@name, @document::jsonb, sqlc.narg(reason)::text)::int as version;

-- name: APINoteRejected :exec
select pgmill.note_rejected(@name);
