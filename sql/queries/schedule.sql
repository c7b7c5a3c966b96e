-- name: SchedulesKnown :many
-- What the database has of schedules by name, and its clock.
select n.name::text as name, d.version, coalesce(d.cron, '')::text as cron, coalesce(d.zone, '')::text as zone,
       coalesce(d.missed, '')::text as missed, coalesce(d.max_missed, 0)::int as max_missed, coalesce(d.overlap, '')::text as overlap,
       d.next_at, d.fired_to, coalesce(d.reason, '')::text as reason, now()::timestamptz as now
from unnest(@names::text[]) n(name)
left join pgmill.schedule d on d.name = n.name
order by n.name;

-- name: SchedulesDeclare :one
select pgmill.declare_schedules(@plans::jsonb)::int;

-- name: SchedulesDue :many
select s.name::text as name, s.version::bigint as version, s.cron::text as cron, s.zone::text as zone, s.missed::text as missed,
       s.max_missed::int as max_missed, s.next_at::timestamptz as next_at, s.since::timestamptz as since, s.now::timestamptz as now
from pgmill.due_schedules(@me, @take::int) s;

-- name: SchedulesFire :one
select f.moved::int as moved, f.ticks::int as ticks
from pgmill.fire_schedules(@plans::jsonb) f;
