-- Clean-ups and the archive: how long each clean-up keeps rows, and up to which position
-- events are archived. Every statement may be repeated, for it runs outside a
-- transaction: the indexes are built while emitters work. An old host prunes nothing
-- and archives nothing; it does not know that a cursor may be before what is kept, so
-- archive once it is gone.

-- +goose NO TRANSACTION
-- +goose Up

-- What a clean-up deletes, as the newest declaration and its host's manifest say.
create table if not exists pgmill.retention (
  name     text primary key references pgmill.function,
  class    text,                  -- of pgmill.cleanup_classes(); null: a statement of its author's
  scope    text     not null,     -- whose rows; 'org:*': each organization's, one at a time
  keep     interval not null check (keep >= '0'),
  batch    int      not null check (batch between 1 and 1000),
  trace_id text
);

-- Events up to this position are archived, or were just about to be. One row; whoever
-- sets a cursor back locks it first, and so does the archive.
create table if not exists pgmill.archive (
  one     boolean primary key default true check (one),
  upto    bigint  not null default 0,
  at      timestamptz not null default now()
);
insert into pgmill.archive default values on conflict do nothing;

-- Expired keys by scope, oldest first; a clean-up looks at one scope only.
drop index concurrently if exists pgmill.event_key_scope_at;
create index concurrently event_key_scope_at on pgmill.event_key (scope, at);
drop index concurrently if exists pgmill.event_key_at;

-- Dead instances, oldest first. Not by last_seen, which each renewal changes and which
-- must stay out of indexes for that to be cheap.
drop index concurrently if exists pgmill.instance_since;
create index concurrently instance_since on pgmill.instance (scope, since);
drop index concurrently if exists pgmill.instance_function_instance;
create index concurrently instance_function_instance on pgmill.instance_function (instance);
