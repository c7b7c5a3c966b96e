-- Submit: one job and one row that waits, in the caller's transaction, whichever way
-- they come: mill.submit_job, mill.submit_jobs, platform.Enqueue, the API. Nothing of
-- a scope is locked, so its submitters do not wait for each other.

-- Time-ordered, so that new rows stand together in the index (uuid v7).
create or replace function pgmill.new_id() returns text
language sql volatile
as $$
  select overlay(gen_random_uuid()::text placing overlay(lpad(to_hex((extract(epoch from clock_timestamp()) * 1000)::bigint), 12, '0') placing '-' from 9 for 0) || '-7'
                 from 1 for 15)
$$;

-- Many such ids, in their order: what follows the time is a random start of each 4096,
-- and counted up.
create or replace function pgmill.new_ids(many int) returns text[]
language plpgsql volatile
as $$
declare
  ids text[] := '{}';
begin
  for part in 0..(many - 1) / 4096 loop
    ids := ids || array(select overlay(b.id placing lpad(to_hex(n), 3, '0') from 16 for 3)
                          from (select pgmill.new_id() as id offset 0) b, generate_series(0, least(4096, many - 4096 * part) - 1) n);
  end loop;
  return ids;
end $$;

-- What a job asks of who runs it, in one text: '' asks nothing.
create or replace function pgmill.demand(requires jsonb, placement jsonb, pool text, worker text) returns text
language sql immutable parallel safe
as $$
  select case when requires is null and placement is null and pool is null and worker is null then ''
              else jsonb_strip_nulls(jsonb_build_object('requires', (select jsonb_agg(x order by x)
                                                                       from (select distinct lower(trim(r)) as x from jsonb_array_elements_text(requires) r) d),
                                                        'placement', nullif(placement, '{}'), 'pool', pool, 'worker', worker))::text end
$$;

-- A lane is open when it has a row, and the newest is not a closed one's (mark below 0,
-- see pgmill.remove_lanes). It is made, or opened again, by who first needs it; if another
-- transaction is at it and has not committed, false: nobody waits for that one. Those
-- that commit at once (mine) make it beside that, so that it opens within a poll. Each
-- such row is far above the newest, where the next admission does not write. False, too, in a transaction whose snapshot is older than its number may be. The caller has a
-- number, and forces generic plans: these statements take longer to plan than to run.
create or replace function pgmill.open_lane(topic text, priority smallint, demand text, scope text, mine boolean default false) returns boolean
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  newest record;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    return false;
  end if;
  select l.n, l.vt, l.low, l.mark into newest from pgmill.lane l
    where l.topic = open_lane.topic and l.priority = open_lane.priority and l.demand = open_lane.demand and l.scope = open_lane.scope
    order by l.n desc limit 1;
  if newest.mark >= 0 then
    return true;
  end if;
  if not pg_try_advisory_xact_lock(hashtextextended('pgmill.lane ' || concat_ws(' ', open_lane.topic, open_lane.priority, open_lane.demand, open_lane.scope), 0)) then
    if not mine then
      return false;
    end if;
  else
    mine := false;
  end if;
  insert into pgmill.lane (topic, priority, demand, scope, n, vt, low)
  values (open_lane.topic, open_lane.priority, open_lane.demand, open_lane.scope, coalesce(newest.n, 0) + 1000000 * (1 + mine::int), coalesce(newest.vt, 0), coalesce(newest.low, 0))
  on conflict do nothing;
  return true;
end $$;

-- Wakes the hosts at the commit, if any sleeps, as pgmill.ring does but by a bell of jobs'
-- own: no look at events comes between. Takes an event's number, for that is what the
-- bell goes by: armed for so many, it falls silent when no host has renewed it.
create or replace function pgmill.ring_for_jobs() returns void
language plpgsql volatile
as $$
begin
  if nextval('pgmill.event_id') < pg_sequence_last_value('pgmill.bell'::regclass)
     and current_setting('pgmill.quiet', true) is distinct from 'on' and pg_notification_queue_usage() < 0.5 then
    perform pg_notify('pgmill', 'j');
  end if;
end $$;

-- Is a job of which topic and input is all that is said well-formed, and the caller's to
-- submit? Must stay one expression, to be inlined; check_job says what is wrong.
create or replace function pgmill.is_plain(topic text, input jsonb) returns boolean
language sql stable
as $$
  select topic ~ '^job(\.[A-Za-z0-9_-]+)+$' and octet_length(topic) <= 128 and jsonb_typeof(input) = 'object' and octet_length(input::text) <= 2097152
     and pgmill.in_scope('install')
$$;

-- Are these labels: texts by name? Null, which are none, is neither yes nor no.
create or replace function pgmill.are_labels(labels jsonb) returns boolean
language plpgsql immutable strict parallel safe
as $$
begin
  return jsonb_typeof(labels) = 'object' and (select count(*) from jsonb_object_keys(labels)) <= 50
     and not exists (select from jsonb_each(labels) l where jsonb_typeof(l.value) <> 'string' or length(l.key) not between 1 and 100 or length(l.value #>> '{}') > 256);
end $$;

-- Refuses a malformed job with MI001 (form) or MI002 (size); its message names the
-- field and what it may be, never what it was.
create or replace function pgmill.check_job(item jsonb) returns void
language plpgsql stable
as $$
declare
  o record;
  bad text;
begin
  if jsonb_typeof(item) is distinct from 'object' then
    raise exception using errcode = 'MI001', message = 'a job must be a JSON object';
  elsif jsonb_typeof(item -> 'topic') is distinct from 'string' or item ->> 'topic' !~ '^job(\.[A-Za-z0-9_-]+)+$' then
    raise exception using errcode = 'MI001', message = 'topic must be words of letters, digits, _ and - joined by dots, the first one job';
  elsif octet_length(item ->> 'topic') > 128 then
    raise exception using errcode = 'MI002', message = 'topic is longer than 128 bytes';
  elsif item ? 'input' and jsonb_typeof(item -> 'input') <> 'object' then
    raise exception using errcode = 'MI001', message = 'input must be a JSON object';
  elsif octet_length((item -> 'input')::text) > 2097152 then
    raise exception using errcode = 'MI002', message = 'input is larger than 2 MiB: store it and point to it';
  end if;
  for o in select key, value, jsonb_typeof(value) as type, value #>> '{}' as text from jsonb_each(item - '{topic,input}'::text[]) loop
    bad := case
      when o.type = 'null' then null
      when o.key = 'scope' then case when o.type <> 'string' or o.text !~ '^(install|provider|org:[A-Za-z0-9_.-]{1,100})$' then 'install, provider or org:<id>' end
      when o.key = 'priority' then case when o.text not in ('critical', 'interactive', 'batch') then 'critical, interactive or batch' end
      when o.key in ('delay_ms', 'deadline_ms', 'max_runtime_ms', 'max_queue_wait_ms', 'debounce_ms') then
        case when o.type <> 'number' or o.text::numeric not between 0 and 315360000000 or o.text::numeric % 1 <> 0 then 'a whole number of milliseconds, 0 to ten years' end
      when o.key = 'max_attempts' then case when o.type <> 'number' or o.text::numeric not between 1 and 100 or o.text::numeric % 1 <> 0 then '1 to 100' end
      when o.key = 'cost' then case when o.type <> 'number' or o.text::numeric not between 1 and 1000 or o.text::numeric % 1 <> 0 then '1 to 1000' end
      when o.key = 'run_at' then case when o.type <> 'string' or o.text !~ '^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:?\d\d)$' then 'a time as RFC 3339' end
      when o.key in ('key', 'unique_key', 'idempotency_key', 'preferred_pool', 'preferred_worker') then
        case when o.type <> 'string' or o.text = '' or octet_length(o.text) > 200 or o.text ~ '[[:cntrl:]]' then '1 to 200 bytes without control characters' end
      when o.key in ('trace_id', 'run_id', 'step_id') then case when o.type <> 'string' or o.text !~ '^[A-Za-z0-9_.:-]{1,128}$' then '1 to 128 of letters, digits and _.:-' end
      when o.key = 'requires' then
        case when o.type <> 'array' or jsonb_array_length(o.value) > 50
               or exists (select from jsonb_array_elements(o.value) r where jsonb_typeof(r) <> 'string' or length(trim(r #>> '{}')) not between 1 and 100) then 'at most 50 words of 1 to 100 characters' end
      when o.key in ('labels', 'placement') then
        case when not pgmill.are_labels(o.value) then 'at most 50 pairs of texts, names of 1 to 100 characters and values of at most 256' end
      when o.key = 'meta' then case when o.type <> 'object' or octet_length(o.value::text) > 16384 then 'an object of at most 16 KiB' end
      else 'not given: no such option' end;
    if bad is not null then
      raise exception using errcode = 'MI001', message = format('%s must be %s', left(regexp_replace(o.key, '[^A-Za-z0-9_.-]', '?', 'g'), 64), bad);
    end if;
  end loop;
  if not pgmill.in_scope(coalesce(item ->> 'scope', 'install')) then
    raise exception using errcode = '42501', message = 'tenant access denied';
  elsif coalesce(item ->> 'debounce_ms', '0') <> '0' and item ->> 'unique_key' is null then
    raise exception using errcode = 'MI001', message = 'debounce_ms must come with a unique_key: jobs with one key are merged';
  elsif item ->> 'run_at' is not null then
    begin
      perform (item ->> 'run_at')::timestamptz;
    exception
      when datetime_field_overflow or invalid_datetime_format or invalid_time_zone_displacement_value then
        raise exception using errcode = 'MI001', message = 'run_at must be a time as RFC 3339';
    end;
  end if;
end $$;

create or replace function pgmill.submitter() returns text
language sql stable
as $$ select case when starts_with(pgmill.actor(), 'db:') then substr(pgmill.actor(), 4) else pgmill.actor() end $$;

-- How long a job of a topic may wait whose submitter says nothing of it. A table, to be inlined.
create or replace function pgmill.topic_queue_wait(topic text) returns table (most interval)
language sql stable rows 1
as $$
  select coalesce((select o.max_queue_wait from pgmill.topic_timeout o where o.topic = topic_queue_wait.topic),
                  (select o.max_queue_wait from pgmill.topic_timeout o where o.topic = '*'), interval '1 hour')
$$;

-- The row of a job that is checked: what its submitter said, and what counts where he
-- said nothing.
create or replace function pgmill.job_row(item jsonb, id text) returns table (
  scope text, topic text, max_attempts int, priority smallint, cost int, key text, unique_key text, demand text, labels jsonb, run_at timestamptz,
  deadline_at timestamptz, max_runtime interval, max_queue_wait interval, trace_id text, run_id text, step_id text, retry_of text, meta jsonb, input jsonb)
language sql stable rows 1
as $$
  select coalesce(item ->> 'scope', 'install'), item ->> 'topic', (item ->> 'max_attempts')::numeric::int,
         case item ->> 'priority' when 'critical' then 0 when 'batch' then 2 else 1 end::smallint,
         coalesce((item ->> 'cost')::numeric::int, 1), item ->> 'key', item ->> 'unique_key',
         case when item ?| '{requires,placement,preferred_pool,preferred_worker}' then
                pgmill.demand(nullif(item -> 'requires', 'null'), nullif(item -> 'placement', 'null'), item ->> 'preferred_pool', item ->> 'preferred_worker')
              else '' end,
         nullif(item -> 'labels', 'null'),
         greatest(now() + nullif((item ->> 'delay_ms')::float8, 0) * interval '1 ms', (item ->> 'run_at')::timestamptz),
         now() + nullif((item ->> 'deadline_ms')::float8, 0) * interval '1 ms',
         nullif((item ->> 'max_runtime_ms')::float8, 0) * interval '1 ms',
         coalesce(nullif((item ->> 'max_queue_wait_ms')::float8, 0) * interval '1 ms', w.most),
         coalesce(item ->> 'trace_id', pgmill.trace(), id), item ->> 'run_id', item ->> 'step_id', item ->> 'retry_of', nullif(item -> 'meta', 'null'),
         coalesce(nullif(item -> 'input', 'null'), '{}')
    from pgmill.topic_queue_wait(item ->> 'topic') w
$$;

-- Puts one job that is checked and has no gate of its own left (idempotency_key,
-- unique_key). Plain statements of one row, since of one job in one statement (put_jobs)
-- the machinery costs more than the rows.
create or replace function pgmill.put_job(item jsonb, id text default pgmill.new_id()) returns text
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  job record;
begin
  perform pg_current_xact_id(); -- before nextval: what pgmill.admit counts on
  insert into pgmill.job as j (id, scope, topic, max_attempts, priority, cost, key, unique_key, demand, labels, run_at, deadline_at, max_runtime, max_queue_wait,
                          trace_id, run_id, step_id, retry_of, meta, input, submitted_by)
  select put_job.id, r.*, pgmill.submitter() from pgmill.job_row(put_job.item, put_job.id) r
  returning j.topic, j.priority, j.demand, j.scope, j.cost, j.key, j.run_at, j.deadline_at, j.max_queue_wait into job;
  if job.run_at is null and not pgmill.open_lane(job.topic, job.priority, job.demand, job.scope) then
    job.run_at := now();
  end if;
  insert into pgmill.job_waiting (job, topic, priority, demand, scope, seq, cost, key, attempt, due_at, expires_at)
  values (put_job.id, job.topic, job.priority, job.demand, job.scope, nextval('pgmill.job_seq'), job.cost, job.key, 1, job.run_at,
          least(job.deadline_at, coalesce(job.run_at, now()) + job.max_queue_wait));
  return put_job.id;
end $$;

-- Puts one job that is plain (is_plain), which most are: as put_job, in two thirds of the
-- time. What its rows have that is not named here is their default.
create or replace function pgmill.put_plain(topic text, input jsonb) returns text
language plpgsql volatile
as $$
#variable_conflict use_variable
declare
  id constant text := pgmill.new_id();
  max_wait interval;
  is_open boolean;
  due timestamptz;
  number constant xid8 := pg_current_xact_id(); -- before the lane is looked at and before nextval, as in put_job
begin
  select w.most, current_setting('transaction_isolation') = 'read committed'
         and (select l.mark >= 0 from pgmill.lane l where l.topic = put_plain.topic and l.priority = 1 and l.demand = '' and l.scope = 'install' order by l.n desc limit 1)
    into max_wait, is_open from pgmill.topic_queue_wait(put_plain.topic) w;
  if is_open is not true and not pgmill.open_lane(topic, 1::smallint, '', 'install') then
    due := now();
  end if;
  insert into pgmill.job (id, topic, max_queue_wait, trace_id, input, submitted_by) values (id, topic, max_wait, coalesce(pgmill.trace(), id), input, pgmill.submitter());
  insert into pgmill.job_waiting (job, topic, priority, demand, scope, seq, cost, attempt, due_at, expires_at)
  values (id, topic, 1, '', 'install', nextval('pgmill.job_seq'), 1, 1, due, coalesce(due, now()) + max_wait);
  return id;
end $$;

-- Puts many at once, in the order of items, under ids: as many put_job, in a third of the time.
create or replace function pgmill.put_jobs(items jsonb[], ids text[]) returns void
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  submitter constant text := pgmill.submitter();
begin
  perform pg_current_xact_id(); -- before nextval, as in put_job
  with item as materialized (
    select i.n, i.id, r.* from unnest(items, ids) with ordinality i(item, id, n) cross join lateral pgmill.job_row(i.item, i.id) r
  ), lane as materialized (
    select d.*, pgmill.open_lane(d.topic, d.priority, d.demand, d.scope) as is_open
      from (select distinct i.topic, i.priority, i.demand, i.scope from item i where i.run_at is null) d
  ), job as (
    insert into pgmill.job (id, scope, topic, max_attempts, priority, cost, key, unique_key, demand, labels, run_at, deadline_at, max_runtime, max_queue_wait,
                          trace_id, run_id, step_id, retry_of, meta, input, submitted_by)
    select i.id, i.scope, i.topic, i.max_attempts, i.priority, i.cost, i.key, i.unique_key, i.demand, i.labels, i.run_at, i.deadline_at, i.max_runtime, i.max_queue_wait,
           i.trace_id, i.run_id, i.step_id, i.retry_of, i.meta, i.input, submitter
      from item i
  )
  insert into pgmill.job_waiting (job, topic, priority, demand, scope, seq, cost, key, attempt, due_at, expires_at)
  select i.id, i.topic, i.priority, i.demand, i.scope, nextval('pgmill.job_seq'), i.cost, i.key, 1, i.due, least(i.deadline_at, coalesce(i.due, now()) + i.max_queue_wait)
    from (select i.*, case when i.run_at is null and not l.is_open then now() else i.run_at end as due
            from item i left join lane l on l.topic = i.topic and l.priority = i.priority and l.demand = i.demand and l.scope = i.scope
           order by i.n) i; -- numbered in this order
end $$;

-- Puts one job that has gates. outcome is accepted (as id), merged (into the job that is
-- returned) or rejected (reason says why, the job is the one in the way).
drop function if exists pgmill.put_gated(jsonb); -- it made the id itself
create or replace function pgmill.put_gated(item jsonb, id text, out job_id text, out outcome text, out reason text)
language plpgsql volatile
as $$
declare
  in_scope constant text := coalesce(item ->> 'scope', 'install');
  hash bytea;
  first record;
  fresh boolean;
  late interval;
begin
  job_id := id;
  outcome := 'accepted';
  if item ->> 'idempotency_key' is not null then
    hash := sha256(convert_to((item - '{idempotency_key,trace_id}'::text[])::text, 'UTF8'));
    insert into pgmill.job_key as k (scope, key, job, body, trace_id)
    values (in_scope, item ->> 'idempotency_key', job_id, hash, item ->> 'trace_id')
    on conflict (scope, key) do update
       set job = excluded.job, body = excluded.body, at = now()
     where k.at < now() - interval '7 days';
    if not found then
      select k.job, k.body into first from pgmill.job_key k where k.scope = in_scope and k.key = item ->> 'idempotency_key';
      if first.body is distinct from hash then
        raise exception using errcode = 'MI004', message = 'idempotency_key was used for another job within seven days';
      end if;
      job_id := first.job;
      outcome := 'merged';
      reason := 'idempotency_key';
      return;
    end if;
  end if;
  if item ->> 'unique_key' is not null then
    loop
      insert into pgmill.job_unique as u (scope, topic, key, job) values (in_scope, item ->> 'topic', item ->> 'unique_key', job_id)
      on conflict do nothing;
      fresh := found;
      exit when fresh;
      select u.job into first from pgmill.job_unique u
       where u.scope = in_scope and u.topic = item ->> 'topic' and u.key = item ->> 'unique_key' for update;
      exit when found; -- else it ended this moment
    end loop;
    if not fresh then
      reason := 'unique_key';
      outcome := 'rejected';
      if coalesce((item ->> 'debounce_ms')::float8, 0) > 0 then
        late := (item ->> 'debounce_ms')::float8 * interval '1 ms';
        update pgmill.job_waiting w
           set due_at = now() + late,
               expires_at = least((select j.deadline_at from pgmill.job j where j.id = w.job), w.expires_at + (now() + late - coalesce(w.due_at, now())))
         where w.job = first.job and w.attempt = 1 and coalesce(w.due_at, now()) < 'infinity';
        if found then
          update pgmill.job j set input = coalesce(item -> 'input', '{}'), run_at = now() + late, updated_at = now() where j.id = first.job;
          outcome := 'merged';
        end if;
      end if;
      if item ->> 'idempotency_key' is not null then
        update pgmill.job_key k set job = first.job where k.scope = in_scope and k.key = item ->> 'idempotency_key';
      end if;
      job_id := first.job;
      return;
    end if;
    if coalesce((item ->> 'debounce_ms')::float8, 0) > 0 then
      item := jsonb_set(item, '{delay_ms}', to_jsonb(greatest((item ->> 'debounce_ms')::float8, coalesce((item ->> 'delay_ms')::float8, 0))));
    end if;
  end if;
  perform pgmill.put_job(item, job_id);
end $$;

create or replace function mill.submit_job(topic text, input jsonb default '{}', options jsonb default '{}') returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
declare
  item jsonb;
  id text;
begin
  if options = '{}' and pgmill.is_plain(topic, input) then
    id := pgmill.put_plain(topic, input);
    perform pgmill.ring_for_jobs();
    return id;
  elsif jsonb_typeof(options) is distinct from 'object' then
    raise exception using errcode = 'MI001', message = 'options must be a JSON object';
  elsif options ?| '{topic,input}' then
    raise exception using errcode = 'MI001', message = 'options must not name the topic or the input again';
  end if;
  item := options || jsonb_build_object('topic', topic, 'input', coalesce(input, '{}'));
  perform pgmill.check_job(item);
  if item ?| '{idempotency_key,unique_key}' then
    select g.job_id into id from pgmill.put_gated(item, pgmill.new_id()) g;
  else
    id := pgmill.put_job(item);
  end if;
  perform pgmill.ring_for_jobs();
  return id;
end $$;

-- Many jobs in one call, all or nothing: an array of {topic, input?, …options}.
create or replace function mill.submit_jobs(jobs jsonb) returns table (job_id text, outcome text, reason text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
declare
  items jsonb[];
  ids text[];
  item jsonb;
begin
  if jobs is null or jsonb_typeof(jobs) <> 'array' then
    raise exception using errcode = 'MI001', message = 'jobs must be a JSON array';
  elsif jsonb_array_length(jobs) > 10000 then
    raise exception using errcode = 'MI002', message = 'at most 10000 jobs in one call';
  end if;
  items := array(select j from jsonb_array_elements(jobs) j);
  perform pgmill.check_job(j) from unnest(items) j
    where (jsonb_typeof(j) = 'object' and jsonb_typeof(j -> 'topic') = 'string' and j - '{topic,input}'::text[] = '{}'
           and pgmill.is_plain(j ->> 'topic', coalesce(j -> 'input', '{}'))) is not true;
  if cardinality(items) < 5 or exists (select from unnest(items) j where j ?| '{idempotency_key,unique_key}') then
    foreach item in array items loop
      if item ?| '{idempotency_key,unique_key}' then
        select g.job_id, g.outcome, g.reason into job_id, outcome, reason from pgmill.put_gated(item, pgmill.new_id()) g;
      else
        job_id := pgmill.put_job(item);
        outcome := 'accepted';
        reason := null;
      end if;
      return next;
    end loop;
  else
    ids := pgmill.new_ids(cardinality(items));
    perform pgmill.put_jobs(items, ids);
    return query select i, 'accepted', null::text from unnest(ids) i;
  end if;
  perform pgmill.ring_for_jobs();
end $$;
