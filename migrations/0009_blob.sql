-- Bytes that are too large for a row that is read often: outputs of jobs above 256 KiB
-- and what functions put away themselves. A blob is written once and never changed. And
-- what the configuration says of time, in the form that statements need. An old host
-- shows a job with a large output as one without; it refuses to make one.

-- +goose Up

create table pgmill.blob (
  id           text        collate "C" primary key,
  kind         text        not null check (kind in ('res', 'art')), -- a job's output, or what a function put
  scope        text        not null default 'install',
  job          text        collate "C",            -- whose output it is; it goes with the job
  content_type text        not null,
  size         bigint      not null,
  sha256       bytea       not null,
  retention    text        check (retention in ('short', 'standard', 'audit')),
  created_at   timestamptz not null default now(),
  expires_at   timestamptz,                        -- of what is no job's
  trace_id     text,
  bytes        bytea       not null,
  check ((kind = 'res') = (job is not null) and (job is null) = (expires_at is not null))
);
alter table pgmill.blob alter column bytes set storage external; -- a piece is read without the rest
create index blob_job on pgmill.blob (job) where job is not null;
create index blob_expires on pgmill.blob (scope, expires_at);

alter table pgmill.job add column output_blob text;

-- Of a topic, or as * of those that say nothing, what its jobs and its step leave open.
create table pgmill.topic_timeout (
  topic          text primary key,
  max_runtime    interval,
  max_queue_wait interval,
  max_attempts   int,
  scope          text not null default 'install',
  trace_id       text
);

-- When the job's time is over, however often its outside worker renews.
alter table pgmill.job_lease add column over_at timestamptz;
