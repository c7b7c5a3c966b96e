-- Modules: which schemas of this database belong to one, and how far each is migrated.
-- Its tables are its own; this row is what hosts go by. An old host has no modules and
-- sees none.

-- +goose Up

create table pgmill.module (
  name        text        primary key,
  versions    bigint[]    not null default '{}', -- what of its migrations is applied
  migrated_at timestamptz not null default now(),
  scope       text        not null default 'install',
  trace_id    text
);
