-- Schedules: one row each with its next fire time; a due one becomes an event. A
-- subscription may be dormant: nothing it listens to has been emitted since its
-- cursors, so that polls and views pass it over. An old host keeps reading its own
-- subscriptions as before; it emits no ticks, and none of its own is dormant.

-- +goose Up

create table pgmill.schedule (
  name       text    primary key references pgmill.function,
  cron       text    not null,
  zone       text    not null,
  missed     text    not null check (missed in ('skip', 'latest', 'all')),
  max_missed int     not null check (max_missed between 1 and 1000),
  overlap    text    not null check (overlap in ('queue', 'skip', 'allow')),
  version    bigint  not null default 0, -- the fence: rises with each change of the row
  next_at    timestamptz,                -- null: it does not fire, reason says why
  fired_to   timestamptz,                -- no fire time up to here fires again
  since      timestamptz,                -- resumed: fire times up to here do not fire
  last_at    timestamptz,                -- the last fire time or trigger that came,
  last_event bigint,                     -- the last tick that was emitted,
  last_left  text check (last_left in ('missed', 'overlap')), -- and why that of last_at was left out, if it was
  fired      bigint  not null default 0,
  paused_at  timestamptz,
  reason     text,
  scope      text    not null default 'install',
  trace_id   text
);
create index schedule_due on pgmill.schedule (next_at) where paused_at is null;

alter table pgmill.subscription add column dormant boolean not null default false;
create index subscription_awake on pgmill.subscription (name) where not dormant;
create index shard_retry on pgmill.shard (next_retry_at) where next_retry_at is not null; -- each poll asks for the next

-- Rows change in place with each fire.
alter table pgmill.schedule set (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500);
