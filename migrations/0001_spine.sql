-- The spine: events, their one order, who is alive, who reads what and how far.
-- Everything is in the private schema pgmill; what people read is in schema mill
-- (sql/views, sql/functions), put in place after the migrations. An old host sees
-- nothing of a newer migration: columns are only added.

-- +goose Up

create schema if not exists pgmill; -- made by the migrator before goose's own table; here for sqlc
create schema if not exists mill;

-- One row an event, written in its author's transaction. xid is the top-level
-- transaction: advance() gives positions by asking which of them are visible. Not
-- partitioned: routing a row costs the emitting transaction twice what the insert
-- does, and a missing partition would abort it. Old events go in batches.
create sequence pgmill.event_id;
create table pgmill.event (
  id         bigint      not null default nextval('pgmill.event_id'),
  xid        xid8        not null default pg_current_xact_id(),
  emitted_at timestamptz not null default clock_timestamp(),
  scope      text        not null default 'install',
  type       text        not null,
  target     text        not null,
  key        text,
  trace_id   text,
  data       jsonb       not null default '{}',
  primary key (id)
);
create index event_xid on pgmill.event (xid);

-- Whether emitters ring at commit: those with a smaller event id do if it is
-- positive; silent until a millisecond of the epoch if negative. A sequence, because it is read and
-- set at once, by everybody, whatever their transactions do.
create sequence pgmill.bell minvalue -9223372036854775807 start 1;
select setval('pgmill.bell', 1);

-- A repeated key returns the first event for seven days.
create table pgmill.event_key (
  scope    text   not null,
  type     text   not null,
  key      text   not null,
  event_id bigint not null,
  body     bytea  not null,
  trace_id text,
  at       timestamptz not null default now(),
  primary key (scope, type, key)
);
create index event_key_at on pgmill.event_key (at);

-- The order: position to event, written by advance() only, never changed.
create table pgmill.log (
  pos         bigint      not null,
  event_id    bigint      not null,
  at          timestamptz not null,
  key_hash    int         not null,
  target_hash int         not null,
  type        text        not null,
  primary key (pos)
) partition by range (pos);
create index log_event on pgmill.log (event_id);
create table pgmill.log_default partition of pgmill.log default;

-- The chain of snapshots behind the positions. Appended, read newest first; the
-- primary key is the wall against two hosts taking one step.
create table pgmill.step (
  k        bigint      primary key,
  base     pg_snapshot not null,
  last     bigint      not null,
  after_id bigint      not null,
  cluster  bigint      not null,
  target   pg_snapshot, -- while a step too big for one transaction is under way: where to,
  upto     bigint,      -- and every id up to here is done
  at       timestamptz not null default clock_timestamp()
);

-- A number of the server's life: being unlogged, the row is gone after a crash, and
-- who opens a shard next writes another. See platform/outbox.
create unlogged table pgmill.epoch (
  one boolean primary key default true check (one),
  n   int not null
);

-- One lease a process. Live is a verdict at reading time; no column says dead.
create table pgmill.instance (
  kind            text        not null,
  id              text        not null,
  contract        text        not null default '',
  version         text        not null default '',
  profile         text        not null default '',
  ttl             interval    not null,
  since           timestamptz not null default now(),
  last_seen       timestamptz not null default now(),
  deregistered_at timestamptz,
  reasons         text[]      not null default '{}',
  scope           text        not null default 'install',
  trace_id        text,
  primary key (kind, id)
);

create table pgmill.function (
  name        text primary key,
  kind        text not null,
  module      text not null,
  listens     text[] not null,
  reason      text,
  declared_at timestamptz not null default now(),
  scope       text not null default 'install',
  trace_id    text
);
create table pgmill.instance_function (
  instance text not null,
  function text not null,
  primary key (function, instance)
);

-- What a subscription is; shards, paused_at and on_poison are data that the
-- declaration only starts with.
create table pgmill.subscription (
  name         text primary key references pgmill.function,
  likes        text[]  not null,
  order_by     text    not null check (order_by in ('key', 'target')),
  shards       int     not null check (shards between 1 and 1024),
  batch        int     not null check (batch between 1 and 10000),
  max_attempts int     not null check (max_attempts >= 1),
  on_poison    text    not null check (on_poison in ('hold', 'park')),
  replayable   boolean not null,
  timeout      interval not null,
  paused_at    timestamptz,
  pause_reason text,
  created_at   timestamptz not null default now(),
  scope        text not null default 'install',
  trace_id     text
);

-- What is wrong with a shard, if anything: the failing position and its attempts,
-- or that it is suspect after a host died holding it.
create table pgmill.shard (
  subscription  text not null references pgmill.subscription,
  shard         int  not null,
  failing_pos   bigint,
  attempts      int  not null default 0,
  reason        text,
  failed_at     timestamptz,
  next_retry_at timestamptz,
  held_at       timestamptz,
  suspect_left  int  not null default 0,
  version       int  not null default 0,
  noted_pos     bigint,
  scope         text not null default 'install',
  trace_id      text,
  primary key (subscription, shard)
);

-- How far a shard has come: appended, newest n counts. Two hosts that both
-- believe they own the shard insert the same n, and one of them fails.
create table pgmill.cursor (
  subscription text   not null,
  shard        int    not null,
  n            bigint not null,
  pos          bigint not null,
  at           timestamptz not null default clock_timestamp(),
  primary key (subscription, shard, n)
);

-- A parked key: its first event failed for good; later ones wait in the log.
-- replay_pos is set while the key is being replayed: everything of the key up to
-- it is done.
create table pgmill.parked_key (
  subscription text   not null,
  shard        int    not null,
  key          text   not null,
  key_hash     int    not null,
  from_pos     bigint not null,
  replay_pos   bigint,
  parked_at    timestamptz not null default now(),
  primary key (subscription, shard, key)
);
create table pgmill.parked_event (
  subscription text   not null,
  shard        int    not null,
  key          text   not null,
  pos          bigint not null,
  event_id     bigint not null,
  reason       text   not null,
  attempts     int    not null,
  parked_at    timestamptz not null default now(),
  scope        text   not null default 'install',
  trace_id     text,
  primary key (subscription, shard, pos)
);

create table pgmill.audit (
  id       bigint generated always as identity primary key,
  at       timestamptz not null default clock_timestamp(),
  actor    text not null,
  action   text not null,
  subject  text not null,
  reason   text,
  scope    text not null default 'install',
  trace_id text
);
create index audit_at on pgmill.audit (at);

-- Which build last put views and functions in place.
create table pgmill.build (
  one     boolean primary key default true check (one),
  ordinal int not null,
  hash    text not null,
  at      timestamptz not null default now()
);

-- Start the chain. The event table is empty, so any snapshot will do.
insert into pgmill.step (k, base, last, after_id, cluster)
select 0, pg_current_snapshot(), 0, 0, system_identifier from pg_control_system();

-- These churn in place; keep their dead rows few.
alter table pgmill.cursor set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
alter table pgmill.step set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
alter table pgmill.instance set (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
