-- What the API reads and does beyond the contract in mill. Each sees the rows of its
-- key's scope only (pgmill.in_scope) and is granted to pgmill_api alone. Lists are pages
-- by key: (time, id) descending, after the last one seen, however many are equal.

create or replace function pgmill.micros(at timestamptz) returns bigint
language sql immutable parallel safe
as $$ select (extract(epoch from at) * 1000000)::bigint $$;

create or replace function pgmill.from_micros(micros bigint) returns timestamptz
language sql immutable parallel safe
as $$ select timestamptz 'epoch' + micros * interval '1 microsecond' $$;

-- A scope by the name that the API has for it: org:t is the tenant t, install is
-- default. Those that would be mistaken keep their own.
create or replace function pgmill.tenant(scope text) returns text
language sql immutable parallel safe
as $$
  select case when scope = 'install' then 'default' when scope in ('org:default', 'org:install', 'org:provider') then scope
              else regexp_replace(scope, '^org:', '') end
$$;

-- A job by the names of the wire format; times in microseconds. What is null is left out.
create or replace function pgmill.job_record(id text) returns jsonb
language sql stable
as $$
  select jsonb_strip_nulls(to_jsonb(v)) from (
    select j.id, j.trace_id, pgmill.micros(j.updated_at) as updated_at, pgmill.micros(j.created_at) as created_at,
           case when r.id is null then j.state else 'RUNNING' end as state,
           j.topic, pgmill.tenant(j.scope) as tenant, j.meta ->> 'team_id' as team, j.meta ->> 'principal_id' as principal,
           j.meta ->> 'actor_id' as actor_id, j.meta ->> 'actor_type' as actor_type, j.meta ->> 'idempotency_key' as idempotency_key,
           j.meta ->> 'capability' as capability, j.meta -> 'risk_tags' as risk_tags, nullif(pgmill.plain_demand(j.demand), '')::jsonb -> 'requires' as requires,
           j.meta ->> 'pack_id' as pack_id, coalesce((r.args ->> 'attempt')::int, j.attempt) as attempts,
           upper(case when r.id is null then pgmill.shown_verdict(j.verdict, j.policy, j.started_at) else j.verdict end) as safety_decision, j.policy as safety_snapshot, ceil(extract(epoch from j.deadline_at))::bigint as deadline_unix,
           (array['critical', 'interactive', 'batch'])[j.priority + 1] as priority, j.reason, pgmill.worker_name(coalesce(r.attempted_by[1], j.instance)) as worker,
           pgmill.micros(j.run_at) as run_at, pgmill.micros(coalesce(r.attempted_at, j.started_at)) as started_at, pgmill.micros(j.finished_at) as finished_at,
           j.labels, j.run_id, j.step_id, j.retry_of, j.submitted_by
      from pgmill.job j
      left join pgmill.river_job r on j.state = 'PENDING' and r.unique_key = pgmill.job_claim_key(j.id) and r.unique_key is not null
                                  and r.unique_states is not null and pgmill.river_job_state_in_bitmask(r.unique_states, r.state)
     where j.id = job_record.id) v
$$;

-- Submits one job; the trace is that of the job answered, which may be an older one.
do $$
begin
  if exists (select from pg_proc p where p.oid = to_regprocedure('pgmill.api_submit(jsonb)') and 'reason' <> all (p.proargnames)) then
    drop function pgmill.api_submit(jsonb);
  end if;
end $$;
create or replace function pgmill.api_submit(item jsonb, out job_id text, out trace_id text, out outcome text, out reason text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  select s.job_id, s.outcome, s.reason into job_id, outcome, reason from mill.submit_jobs(jsonb_build_array(item)) s;
  select j.trace_id into trace_id from pgmill.job j where j.id = job_id;
end $$;

-- What the input of a topic must be; null: anything.
create or replace function pgmill.topic_input(topic text) returns jsonb
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$ select t.input_schema from pgmill.topic t where t.name = topic_input.topic $$;

-- What the output of a claimed job must be; null: anything, or the claim is gone.
create or replace function pgmill.job_output(id text, token text) returns jsonb
language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
  select t.output_schema from pgmill.job_lease l
    join pgmill.river_job r on r.id = l.claim and r.state::text = 'running' and r.args ->> 'job' = job_output.id
    join pgmill.topic t on t.name = r.kind
   where l.claim = case when job_output.token ~ '^\d{1,18}-' then split_part(job_output.token, '-', 1)::bigint end
     and l.token = job_output.token and l.until > now() and pgmill.in_scope(r.args ->> 'scope')
$$;

-- The topic itself, if a step, the pools' document or somebody live that may take jobs of
-- the scope knows it; else those that are known, at most a thousand.
create or replace function pgmill.known_topics(topic text, scope text) returns setof text
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  if not pgmill.in_scope(known_topics.scope) then
    return;
  elsif exists (select from pgmill.topic t where t.name = known_topics.topic) or exists (select from pgmill.pool_topic p where p.topic = known_topics.topic)
     or exists (select from pgmill.instance_function f join pgmill.instance i on i.kind in ('worker', 'outside') and i.id = f.instance
                 where f.function = known_topics.topic and pgmill.serves(i.id, known_topics.scope) and pgmill.is_live(i.last_seen, i.ttl, i.deregistered_at)) then
    return next known_topics.topic;
    return;
  end if;
  return query
  select name from (
    select t.name from pgmill.topic t
    union select p.topic from pgmill.pool_topic p
    union select f.function from pgmill.instance i join pgmill.instance_function f on f.instance = i.id
           where i.kind = 'outside' and pgmill.serves(i.id, known_topics.scope) and pgmill.is_live(i.last_seen, i.ttl, i.deregistered_at)) k
   order by name limit 1000;
end $$;

-- A page of who lives and may take jobs, by id, after this one: hosts, and workers outside
-- of them. A worker is its key's scope's, a host the install's.
create or replace function pgmill.list_workers(after text, size int) returns setof jsonb
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return query
  select jsonb_strip_nulls(to_jsonb(v)) from (
    select i.id, pgmill.worker_name(i.id) as worker_id, case i.kind when 'worker' then 'host' else i.kind end as kind, pgmill.tenant(o.scope) as tenant,
           i.pools[1] as pool, i.pools, i.labels, pgmill.micros(i.last_seen) as updated_at, i.claims as active_jobs,
           array(select distinct r from unnest(i.pools) p cross join unnest(pgmill.pool_offers(p)) r order by r) as capabilities,
           array(select f.function from pgmill.instance_function f
                  where f.instance = i.id and starts_with(f.function, 'job.') and pgmill.suits('', f.function, i.id, i.pools, i.labels, o.scope) order by f.function) as topics
      from mill.instances i
     cross join lateral (select case when strpos(i.id, '/') > 0 then split_part(i.id, '/', 1) else 'install' end as scope) o
     where i.live and i.kind in ('worker', 'outside') and i.id > list_workers.after and pgmill.in_scope(o.scope)
     order by i.id limit list_workers.size) v;
end $$;

-- A page of jobs, the last changed first. The filter has state, topic, scope, team,
-- trace_id, after and before (microseconds) and the cursor at and id. What is stored as
-- PENDING may be running: each arm takes its page in the order of an index. The
-- statement is made anew, so that it is planned for the filter at hand.
create or replace function pgmill.list_jobs(filter jsonb, size int) returns setof jsonb
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  bounds text := 'pgmill.in_scope(j.scope)';
  scope text := coalesce(filter ->> 'scope', nullif(current_setting('pgmill.scope', true), '*'));
  want text := filter ->> 'state';
  arms text[];
begin
  bounds := concat_ws(' and ', bounds,
    case when scope is not null and scope <> '' then format('j.scope = %L', scope) end,
    case when filter ? 'topic' then format('j.topic = %L', filter ->> 'topic') end,
    case when filter ? 'trace_id' then format('j.trace_id = %L', filter ->> 'trace_id') end,
    case when filter ? 'team' then format('j.meta ->> ''team_id'' = %L', filter ->> 'team') end,
    case when filter ? 'after' then format('j.updated_at > pgmill.from_micros(%s)', (filter ->> 'after')::bigint) end,
    case when filter ? 'before' then format('j.updated_at < pgmill.from_micros(%s)', (filter ->> 'before')::bigint) end,
    case when filter ? 'at' then format('(j.updated_at, j.id) < (pgmill.from_micros(%s), %L)', (filter ->> 'at')::bigint, filter ->> 'id') end);
  if want is null or want not in ('PENDING', 'RUNNING') then
    arms := arms || format('from pgmill.job j where %s and %s', case when want is null then 'j.state <> ''PENDING''' else format('j.state = %L', want) end, bounds);
  end if;
  if want is null or want = 'RUNNING' then
    arms := arms || format('from pgmill.river_job r join pgmill.job j on j.id = r.args ->> ''job'' and j.state = ''PENDING'' where r.queue = ''job'' and r.state = ''running'' and %s', bounds);
  end if;
  if want is null or want = 'PENDING' then
    arms := arms || format('from pgmill.job j where j.state = ''PENDING'' and not exists (select from pgmill.river_job r where r.unique_key = pgmill.job_claim_key(j.id)
      and r.unique_key is not null and r.unique_states is not null and pgmill.river_job_state_in_bitmask(r.unique_states, r.state)) and %s', bounds);
  end if;
  return query execute (
    select format('select pgmill.job_record(p.id) from (select * from (%s) u order by u.updated_at desc, u.id desc limit %s) p order by p.updated_at desc, p.id desc',
                  string_agg(format('(select j.id, j.updated_at %s order by j.updated_at desc, j.id desc limit %s)', a, size), ' union all '), size)
      from unnest(arms) a);
end $$;

-- One job with what went in and came out, its earlier attempts, and of one that waits
-- why; null: there is none for the caller.
create or replace function pgmill.get_job(id text) returns jsonb
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select pgmill.job_record(j.id) || jsonb_build_object(
           'scope', j.scope, 'meta', coalesce(j.meta, '{}'), 'input', j.input, 'output', j.output,
           'output_ptr', coalesce('ptr://res/' || j.output_blob, ''), 'output_bytes', (select b.size from pgmill.blob b where b.id = j.output_blob),
           'output_sha256', (select encode(b.sha256, 'hex') from pgmill.blob b where b.id = j.output_blob),
           'progress', (select jsonb_build_object('percent', p.percent, 'message', coalesce(p.message, ''), 'at', pgmill.micros(p.at)) from pgmill.job_progress p where p.job = j.id),
           'waiting_for', (select pgmill.wait_code(w.blocked, w.due_at, w.reason, w.since, pgmill.lane_reason(w.topic, w.demand, w.scope)) from pgmill.job_waiting w where w.job = j.id),
           'attempt_list', (select coalesce(jsonb_agg(jsonb_build_object('attempt', a.attempt, 'worker', coalesce(pgmill.worker_name(a.instance), ''), 'started_at', pgmill.micros(a.started_at),
                                                                        'ended_at', pgmill.micros(a.ended_at), 'reason', a.reason) order by a.ended_at), '[]')
                              from pgmill.job_attempt a where a.job = j.id))
    from pgmill.job j
   where j.id = get_job.id and pgmill.in_scope(j.scope)
$$;

-- The jobs of one trace in the order of their making, at most a thousand and one, by which
-- the API knows that there are more.
create or replace function pgmill.trace_jobs(trace text) returns setof jsonb
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select pgmill.job_record(j.id) from pgmill.job j
   where j.trace_id = trace_jobs.trace and pgmill.in_scope(j.scope) order by j.created_at, j.id limit 1001
$$;

-- Dead letters that were not retried, the latest first. The filter has reason_code,
-- topic, scope, after, before and the cursor at and id.
create or replace function pgmill.dead_page(filter jsonb, size int) returns setof pgmill.dead_letter
language plpgsql stable
as $$
declare
  scope text := coalesce(filter ->> 'scope', nullif(current_setting('pgmill.scope', true), '*'));
begin
  return query execute format('select d.* from pgmill.dead_letter d where %s order by d.died_at desc, d.job desc limit %s', concat_ws(' and ',
    'd.retried_as is null and pgmill.in_scope(d.scope)',
    case when scope is not null and scope <> '' then format('d.scope = %L', scope) end,
    case when filter ? 'reason_code' then format('d.reason = %L', filter ->> 'reason_code') end,
    case when filter ? 'topic' then format('d.topic = %L', filter ->> 'topic') end,
    case when filter ? 'after' then format('d.died_at > pgmill.from_micros(%s)', (filter ->> 'after')::bigint) end,
    case when filter ? 'before' then format('d.died_at < pgmill.from_micros(%s)', (filter ->> 'before')::bigint) end,
    case when filter ? 'at' then format('(d.died_at, d.job) < (pgmill.from_micros(%s), %L)', (filter ->> 'at')::bigint, filter ->> 'id') end), size);
end $$;

create or replace function pgmill.list_dead_letters(filter jsonb, size int) returns setof jsonb
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select jsonb_build_object('job_id', d.job, 'topic', d.topic, 'status', 'JOB_STATUS_' || d.state, 'reason', d.reason, 'reason_code', d.reason, 'last_state', d.state,
                            'attempts', d.attempts, 'created_at', to_char(d.died_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), 'tenant', pgmill.tenant(d.scope),
                            'died_at', pgmill.micros(d.died_at))
    from pgmill.dead_page(filter, size) d
$$;

create or replace function pgmill.count_dead_letters() returns table (reason_code text, topic text, count bigint)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select d.reason, d.topic, count(*) from pgmill.dead_letter d where d.retried_as is null and pgmill.in_scope(d.scope) group by 1, 2 order by 3 desc, 1, 2 limit 1001
$$;

-- Retries or deletes what the filter names, at most size at once; answers the letters
-- that it was done to, and of a retry the new jobs, '' where a live one is in the way.
create or replace function pgmill.sweep_dead_letters(filter jsonb, retry boolean, size int) returns table (job_id text, retried_as text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  letter text;
begin
  for letter in select d.job from pgmill.dead_page(filter, size) d loop
    job_id := letter;
    retried_as := '';
    if retry then
      select case when r.outcome = 'rejected' then '' else r.job_id end into retried_as from pgmill.retry_letter(letter, 'bulk') r;
    else
      continue when not mill.delete_dead_letter(letter, 'bulk');
    end if;
    return next;
  end loop;
end $$;
