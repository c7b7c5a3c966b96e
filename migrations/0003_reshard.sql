-- +goose Up

-- A change of a subscription's shards that is under way: those there are work up to
-- stop_at, then shards new ones go on.
create table pgmill.reshard (
  subscription text primary key references pgmill.subscription,
  shards       int         not null check (shards between 1 and 1024),
  stop_at      bigint      not null,
  asked_at     timestamptz not null default now(),
  scope        text        not null default 'install',
  trace_id     text
);
