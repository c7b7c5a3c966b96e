-- What operators do to jobs, limits and pools; each leaves an audit row.

-- Runs a dead letter again: a full clone that passes the door and its gates like any other;
-- the old one stays as it ended and points to it. outcome is accepted, merged (it was
-- retried before, as that job) or rejected: a live job of its unique_key is in the way, and
-- the letter stays one.
create or replace function pgmill.retry_letter(id text, why text, out job_id text, out outcome text, out reason text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  d record;
  j pgmill.job;
begin
  select * into d from pgmill.dead_letter l where l.job = retry_letter.id and pgmill.in_scope(l.scope) for update;
  if not found then
    raise exception using errcode = 'P0002', message = 'no such dead letter';
  elsif d.retried_as is not null then
    job_id := d.retried_as;
    outcome := 'merged';
    return;
  end if;
  select * into j from pgmill.job x where x.id = retry_letter.id;
  select g.job_id, g.outcome, g.reason into job_id, outcome, reason from pgmill.put_gated(jsonb_strip_nulls(jsonb_build_object(
    'retry_of', j.id, 'topic', j.topic, 'scope', j.scope, 'priority', (array['critical', 'interactive', 'batch'])[j.priority + 1],
    'max_attempts', j.max_attempts, 'cost', j.cost, 'key', j.key, 'unique_key', j.unique_key, 'labels', j.labels, 'trace_id', j.trace_id, 'run_id', j.run_id, 'step_id', j.step_id,
    'max_runtime_ms', extract(epoch from j.max_runtime) * 1000, 'max_queue_wait_ms', extract(epoch from j.max_queue_wait) * 1000,
    'deadline_ms', extract(epoch from j.deadline_at - j.created_at) * 1000)
    || case when j.demand = '' then '{}'::jsonb
            else jsonb_build_object('requires', j.demand::jsonb -> 'requires', 'placement', j.demand::jsonb -> 'placement',
                                    'preferred_pool', j.demand::jsonb -> 'pool', 'preferred_worker', j.demand::jsonb -> 'worker') end)
    || case when j.meta is null then '{}'::jsonb else jsonb_build_object('meta', j.meta) end
    || jsonb_build_object('input', j.input),
    regexp_replace(retry_letter.id, '-retry-[0-9a-f]{8}$', '') || '-retry-' || substr(md5(gen_random_uuid()::text), 1, 8)) g;
  if outcome <> 'accepted' then
    return;
  end if;
  perform pgmill.ring_for_jobs();
  update pgmill.dead_letter l set retried_as = job_id where l.job = retry_letter.id;
  insert into pgmill.audit (actor, action, subject, reason) values (pgmill.actor(), 'retry', 'job ' || retry_letter.id, retry_letter.why);
end $$;

create or replace function mill.retry_dead_letter(id text, reason text default null) returns text
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$ select r.job_id from pgmill.retry_letter(retry_dead_letter.id, retry_dead_letter.reason) r $$;

create or replace function mill.delete_dead_letter(id text, reason text default null) returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  delete from pgmill.dead_letter l where l.job = delete_dead_letter.id and pgmill.in_scope(l.scope);
  if not found then
    return false;
  end if;
  insert into pgmill.audit (actor, action, subject, reason) values (pgmill.actor(), 'delete_dead_letter', 'job ' || delete_dead_letter.id, delete_dead_letter.reason);
  return true;
end $$;

-- What one scope may have running at once (null: no limit) and its share of turns.
create or replace function mill.limit_scope(scope text, max_running int, weight float8 default 1, reason text default null) returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  if limit_scope.scope is null or limit_scope.scope !~ '^(install|provider|org:[A-Za-z0-9_.-]{1,100})$' then
    raise exception using errcode = 'MI001', message = 'scope must be install, provider or org:<id>';
  elsif limit_scope.max_running < 0 or coalesce(limit_scope.weight, 0) not between 0.001 and 1000 then
    raise exception using errcode = 'MI001', message = 'max_running must be null or at least 0, weight 0.001 to 1000';
  end if;
  insert into pgmill.scope_limit (scope, max_running, weight) values (limit_scope.scope, limit_scope.max_running, limit_scope.weight)
  on conflict (scope) do update set max_running = excluded.max_running, weight = excluded.weight;
  insert into pgmill.audit (actor, action, subject, reason) values (pgmill.actor(), 'limit_scope', 'scope ' || limit_scope.scope, limit_scope.reason);
end $$;

-- Which pools there are, what they offer, and which topics go to them (C26):
-- {"topics": {"job.a": "pool" or ["pool", …]}, "pools": {"pool": {"requires": ["gpu"]}}}.
-- An invalid document changes nothing.
create or replace function mill.set_pools(document jsonb, reason text default null) returns int
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  bad text;
  v int;
begin
  bad := case
    when jsonb_typeof(document) is distinct from 'object' then 'the document must be an object'
    when exists (select from jsonb_object_keys(document) k where k not in ('topics', 'pools')) then 'the document has topics and pools and nothing else'
    when jsonb_typeof(document -> 'topics') is distinct from 'object' or document -> 'topics' = '{}' then 'topics must name at least one topic'
    when jsonb_typeof(coalesce(document -> 'pools', '{}')) <> 'object' then 'pools must be an object' end;
  if bad is null then
    select case when t.key !~ '^job(\.[A-Za-z0-9_-]+)+$' then 'a topic must be words joined by dots, the first one job'
                when jsonb_typeof(t.value) not in ('string', 'array') or t.value = '[]' then 'a topic goes to a pool or an array of pools' end into bad
      from jsonb_each(document -> 'topics') t
     where t.key !~ '^job(\.[A-Za-z0-9_-]+)+$' or jsonb_typeof(t.value) not in ('string', 'array') or t.value = '[]' limit 1;
  end if;
  if bad is null then
    select 'pool ' || left(regexp_replace(p.key, '[^A-Za-z0-9_.-]', '?', 'g'), 64) || ' must be an object with requires, an array of words' into bad
      from jsonb_each(coalesce(document -> 'pools', '{}')) p
     where p.key !~ '^[A-Za-z0-9_.-]{1,64}$' or jsonb_typeof(p.value) <> 'object'
        or exists (select from jsonb_object_keys(case when jsonb_typeof(p.value) = 'object' then p.value else '{}' end) k where k <> 'requires')
        or jsonb_typeof(coalesce(p.value -> 'requires', '[]')) <> 'array'
        or exists (select from jsonb_array_elements(case when jsonb_typeof(p.value -> 'requires') = 'array' then p.value -> 'requires' else '[]' end) r
                    where jsonb_typeof(r) <> 'string' or length(trim(r #>> '{}')) not between 1 and 100) limit 1;
  end if;
  if bad is null then
    select 'each pool of a topic must be listed in pools' into bad
      from jsonb_each(document -> 'topics') t
     cross join lateral jsonb_array_elements(case when jsonb_typeof(t.value) = 'array' then t.value else jsonb_build_array(t.value) end) p
     where jsonb_typeof(p) <> 'string' or (p #>> '{}' <> 'default' and not coalesce(document -> 'pools', '{}') ? (p #>> '{}')) limit 1;
  end if;
  if bad is not null then
    raise exception using errcode = 'MI001', message = 'pools: ' || bad, detail = jsonb_build_array(jsonb_build_object('path', '', 'message', bad));
  end if;
  v := pgmill.keep_document('pools', document, reason);
  delete from pgmill.pool_topic;
  delete from pgmill.pool;
  insert into pgmill.pool (name, requires)
  select p.key, array(select lower(trim(r)) from jsonb_array_elements_text(coalesce(p.value -> 'requires', '[]')) r) from jsonb_each(coalesce(document -> 'pools', '{}')) p;
  insert into pgmill.pool_topic (topic, pool, place)
  select t.key, p.name, p.place from jsonb_each(document -> 'topics') t
   cross join lateral jsonb_array_elements_text(case when jsonb_typeof(t.value) = 'array' then t.value else jsonb_build_array(t.value) end) with ordinality p(name, place)
  on conflict do nothing;
  perform pgmill.ring_for_jobs();
  return v;
end $$;

-- Writes down what steps a build has; called when a host starts.
create or replace function pgmill.declare_topics(steps jsonb) returns void
language sql volatile
as $$
  insert into pgmill.function (name, kind, module, listens, reason)
  select s.name, 'step', s.module, array[s.name], null from jsonb_to_recordset(steps) as s(name text, module text) order by s.name
  on conflict (name) do update set kind = excluded.kind, module = excluded.module, listens = excluded.listens, reason = null, declared_at = now();
  insert into pgmill.topic (name, function, max_attempts, max_runtime, backoff, backoff_max, retry_on, concurrency, per_scope, per_key, rate, rate_per, input_schema, output_schema)
  select s.name, s.name, s.max_attempts, s.max_runtime_ms * interval '1 ms', s.backoff_ms * interval '1 ms', s.backoff_max_ms * interval '1 ms', s.retry_on,
         nullif(s.concurrency, 0), nullif(s.per_scope, 0), nullif(s.per_key, 0), nullif(s.rate, 0), s.rate_per_ms * interval '1 ms', s.input_schema, s.output_schema
    from jsonb_to_recordset(steps) as s(name text, max_attempts int, max_runtime_ms bigint, backoff_ms bigint, backoff_max_ms bigint, retry_on text[],
                                        concurrency int, per_scope int, per_key int, rate int, rate_per_ms bigint, input_schema jsonb, output_schema jsonb)
   order by s.name
  on conflict (name) do update
     set max_attempts = excluded.max_attempts, max_runtime = excluded.max_runtime, backoff = excluded.backoff, backoff_max = excluded.backoff_max,
         retry_on = excluded.retry_on, concurrency = excluded.concurrency, per_scope = excluded.per_scope, per_key = excluded.per_key,
         rate = excluded.rate, rate_per = excluded.rate_per, input_schema = excluded.input_schema, output_schema = excluded.output_schema
$$;
