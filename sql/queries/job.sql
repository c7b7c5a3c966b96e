-- name: TopicsDeclare :exec
select pgmill.declare_topics(@steps::jsonb);

-- name: JobsAdmit :many
-- The durations are counted by the database's clock; 0: the step's.
select a.claim::bigint as claim, a.job::text as job, a.topic::text as topic, a.attempt::int as attempt, a.input::jsonb as input, a.scope::text as scope, a.trace_id::text as trace_id,
       coalesce((extract(epoch from least(a.deadline_at, clock_timestamp() + a.max_runtime) - clock_timestamp()) * 1000)::bigint, 0)::bigint as within_ms,
       coalesce(a.deadline_at <= clock_timestamp() + a.max_runtime, a.deadline_at is not null)::boolean as by_deadline, a.limited::boolean as limited
from pgmill.admit(@me, @topics::text[], @slots::int, sqlc.narg('pools')::text[], sqlc.narg('labels')::jsonb) a;

-- name: ClaimsEnd :many
select e.claim::bigint as claim, e.state::text as state
from pgmill.end_claims(@claims::bigint[], sqlc.narg('outcomes')::text[], @reasons::text[], @finals::boolean[], @outputs::jsonb[], @rests_ms::bigint[]) e;

-- name: JobsCancelled :many
select c::bigint as claim from pgmill.cancelled_jobs(@me, @heard::bigint[]) c;

-- name: JobLate :exec
select pgmill.late_result(@job, @attempt::int, @me);

-- name: JobProgress :exec
select pgmill.note_progress(@job, @percent::int, sqlc.narg(message)::text);
