-- Jobs: the truth of each request for work, what of it waits, and how it ended. The
-- right to work on one now is a River row, as for shards. An old host sees none of it:
-- it fetches nothing from the queue of jobs.

-- +goose Up

-- One row a job. state is stored for the waiting kinds and the ends only; that it runs
-- is what its claim says (mill.jobs). The row is written when the job is submitted, when an
-- attempt ends and when it is cancelled, never when it is claimed. instance, started_at
-- and attempt are the last attempt's.
create table pgmill.job (
  id            text        collate "C" primary key,
  scope         text        not null default 'install',
  topic         text        not null,
  state         text        not null default 'PENDING'
                check (state in ('PENDING', 'APPROVAL_REQUIRED', 'SUCCEEDED', 'FAILED', 'CANCELLED', 'TIMEOUT', 'DENIED')),
  reason        text,
  attempt       int         not null default 0,
  max_attempts  int         check (max_attempts between 1 and 100), -- null: its step's
  priority      smallint    not null default 1 check (priority between 0 and 2), -- critical, interactive, batch
  cost          int         not null default 1 check (cost between 1 and 1000),
  key           text,
  unique_key    text,
  demand        text        not null default '',  -- what it asks of who runs it: requires, placement, pool, worker
  labels        jsonb,
  created_at    timestamptz not null default now(),
  updated_at    timestamptz not null default now(),
  run_at        timestamptz,
  deadline_at   timestamptz,
  max_runtime   interval,
  max_queue_wait interval,
  started_at    timestamptz,
  finished_at   timestamptz,
  instance      text,
  trace_id      text        not null,
  run_id        text,
  step_id       text,
  retry_of      text,
  verdict       text        not null default 'allow',
  policy        text,                             -- the snapshot that the verdict was given by
  input         jsonb       not null default '{}',
  output        jsonb,
  submitted_by  text        not null default session_user
);
create index job_updated on pgmill.job (updated_at, id);
create index job_state on pgmill.job (state, updated_at, id);
create index job_topic on pgmill.job (topic, updated_at, id);
create index job_scope on pgmill.job (scope, updated_at, id);
create index job_trace on pgmill.job (trace_id);

-- What waits to be admitted, one row a job. A row with due_at rests until then: it is
-- late, limited or was told to; the others are in their lane's order.
create sequence pgmill.job_seq cache 1;
create table pgmill.job_waiting (
  job        text        collate "C" primary key,
  topic      text        not null,
  priority   smallint    not null,
  demand     text        not null,
  scope      text        not null,
  seq        bigint      not null,
  cost       int         not null,
  key        text,
  attempt    int         not null,                -- the number of the attempt that it waits for
  due_at     timestamptz,
  blocked    text,                                -- a limit that it was met with; due_at is then infinity
  reason     text,                                -- why it waits again
  expires_at timestamptz,
  since      timestamptz not null default now()
);
create index job_waiting_lane on pgmill.job_waiting (topic, priority, demand, scope, seq) where due_at is null;
create index job_waiting_since on pgmill.job_waiting (topic, since) where due_at is null;
create index job_waiting_due on pgmill.job_waiting (due_at) where due_at is not null;
create index job_waiting_blocked on pgmill.job_waiting (blocked, seq) where blocked is not null;
create index job_waiting_expires on pgmill.job_waiting (expires_at) where expires_at is not null;

-- A lane: what waits in one order. Its virtual time says whose turn it is among the
-- lanes of one priority. Appended, the newest n counts, because a row that is updated
-- for each admission is read ever slower beside an old snapshot. Nothing that waits is
-- numbered below low; mark and mark_xid are the next low, once no transaction that was
-- running then is left (see pgmill.admit).
create table pgmill.lane (
  topic    text     not null,
  priority smallint not null,
  demand   text     not null,
  scope    text     not null,
  n        bigint   not null,
  vt       float8   not null default 0,
  low      bigint   not null default 0,
  mark     bigint   not null default 0,
  mark_xid xid8     not null default '0',
  at       timestamptz not null default now()
);
create unique index lane_newest on pgmill.lane (topic, priority, demand, scope, n desc);

-- What the steps declare of their topics; a topic without a row is one that no step
-- of this database has ever been registered for.
create table pgmill.topic (
  name         text primary key,
  function     text not null references pgmill.function,
  max_attempts int  not null,
  max_runtime  interval not null,
  backoff      interval not null,
  backoff_max  interval not null,
  retry_on     text[],                            -- null: whatever the reason
  concurrency  int,                               -- of the whole fleet; null: no limit
  per_scope    int,
  per_key      int,
  rate         int,                               -- starts in each rate_per; null: no limit
  rate_per     interval,
  input_schema  jsonb,
  output_schema jsonb,
  scope        text not null default 'install',
  trace_id     text
);

-- When a topic with a rate may start its next job. Appended like lanes.
create table pgmill.topic_rate (
  topic text        not null,
  n     bigint      not null,
  tat   timestamptz not null,
  primary key (topic, n)
);

-- The attempts before the last one, which is in the job's own row.
create table pgmill.job_attempt (
  job        text        collate "C" not null,
  attempt    int         not null,
  instance   text,
  started_at timestamptz,
  ended_at   timestamptz not null default now(),
  reason     text        not null,
  scope      text        not null default 'install',
  trace_id   text,
  primary key (job, attempt, ended_at)
);

-- A claim of an outside worker: how long it is good for. A host's claims last as long
-- as the host's own lease.
create table pgmill.job_lease (
  claim  bigint      primary key,
  worker text        not null,
  token  text        not null,
  ttl    interval    not null,
  until  timestamptz not null
);
create index job_lease_until on pgmill.job_lease (until);

-- A running job that was cancelled, until its holder has heard of it.
create table pgmill.job_cancel (
  claim    bigint      primary key,
  job      text        not null,
  instance text        not null,
  at       timestamptz not null default now()
);
create index job_cancel_instance on pgmill.job_cancel (instance);

-- One job a unique key while it has not ended.
create table pgmill.job_unique (
  scope text not null,
  topic text not null,
  key   text not null,
  job   text not null,
  primary key (scope, topic, key)
);

-- A repeated submit returns the first one's job for seven days.
create table pgmill.job_key (
  scope    text  not null,
  key      text  not null,
  job      text  not null,
  body     bytea not null,
  trace_id text,
  at       timestamptz not null default now(),
  primary key (scope, key)
);
create index job_key_scope_at on pgmill.job_key (scope, at);

-- Jobs that did not succeed and were not cancelled.
create table pgmill.dead_letter (
  job        text        collate "C" primary key,
  scope      text        not null,
  topic      text        not null,
  state      text        not null,
  reason     text        not null,
  attempts   int         not null,
  died_at    timestamptz not null default now(),
  retried_as text,
  trace_id   text
);
create index dead_letter_died on pgmill.dead_letter (died_at, job);
create index dead_letter_scope on pgmill.dead_letter (scope, died_at);

alter table pgmill.job_waiting set (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);
alter table pgmill.lane set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- What one scope may have at once, and its share of turns.
create table pgmill.scope_limit (
  scope       text   primary key,
  max_running int    check (max_running >= 0),
  weight      float8 not null default 1 check (weight > 0 and weight <= 1000),
  trace_id    text
);

-- Configuration as one document a name, its versions kept; the newest counts. Tables
-- beside it hold what it says in the form that statements need.
create table pgmill.document (
  name    text        not null,
  version int         not null,
  body    jsonb       not null,
  actor   text        not null default session_user,
  at      timestamptz not null default now(),
  scope   text        not null default 'install',
  trace_id text,
  primary key (name, version)
);
create table pgmill.pool (
  name     text   primary key,
  requires text[] not null default '{}'
);
create table pgmill.pool_topic (
  topic text not null,
  pool  text not null,
  place int  not null,
  primary key (topic, pool)
);

-- What a host or a worker offers to jobs; null pools: any.
alter table pgmill.instance add column pools text[];
alter table pgmill.instance add column labels jsonb;

-- The last word of a running job.
create table pgmill.job_progress (
  job     text collate "C" primary key,
  percent int  not null,
  message text,
  at      timestamptz not null default now()
);
