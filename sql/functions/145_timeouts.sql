-- The timeouts of the configuration (C47, C49): of a topic what its jobs leave open,
-- whatever its step declares, and under reconciler what is left open by both.
-- {"topics": {"job.a": {"timeout_seconds": 60, "max_queue_wait_seconds": 600, "max_retries": 2}},
--  "workflows": {"w": {"child_timeout_seconds": 60, "total_timeout_seconds": 3600, "max_retries": 2}},
--  "reconciler": {"running_timeout_seconds": 9000, "max_queue_wait_seconds": 3600}}
-- 0 is as if it were not there; where nothing says how long, it is 9000 seconds. Waiting jobs get a new timeout and number of retries at
-- their next attempt; how long they may wait is set when they are submitted. A
-- workflow's are kept for its runs. reconciler may have dispatch_timeout_seconds and
-- scan_interval_seconds, as such documents do: no job is dispatched without running,
-- and the look is each second, so nothing ever exceeds them.

-- A name in a JSON pointer, without what does not belong into a message.
create or replace function pgmill.path_word(name text) returns text
language sql immutable parallel safe
as $$ select replace(replace(left(regexp_replace(name, '[^A-Za-z0-9_./~-]', '?', 'g'), 128), '~', '~0'), '/', '~1') $$;

-- What is wrong with such a document, each place by its JSON pointer.
create or replace function pgmill.timeout_faults(document jsonb) returns table (path text, message text)
language sql stable
as $$
  with field(part, name, most) as (
    values ('topics', 'timeout_seconds', 315360000), ('topics', 'max_queue_wait_seconds', 315360000), ('topics', 'max_retries', 99),
           ('workflows', 'child_timeout_seconds', 315360000), ('workflows', 'total_timeout_seconds', 315360000), ('workflows', 'max_retries', 99),
           ('reconciler', 'running_timeout_seconds', 315360000), ('reconciler', 'max_queue_wait_seconds', 315360000),
           ('reconciler', 'dispatch_timeout_seconds', 315360000), ('reconciler', 'scan_interval_seconds', 315360000)
  ), part as materialized (
    select p.key as part, p.value from jsonb_each(case when jsonb_typeof(document) = 'object' then document else '{}' end) p
  ), entry as materialized (
    select p.part, e.key as name, '/' || p.part || '/' || pgmill.path_word(e.key) as path, e.value
      from part p cross join lateral jsonb_each(case when jsonb_typeof(p.value) = 'object' then p.value else '{}' end) e where p.part in ('topics', 'workflows')
    union all
    select p.part, null, '/' || p.part, p.value from part p where p.part = 'reconciler' and jsonb_typeof(p.value) = 'object'
  ), value as (
    select e.part, v.key as name, e.path || '/' || pgmill.path_word(v.key) as path, v.value
      from entry e cross join lateral jsonb_each(case when jsonb_typeof(e.value) = 'object' then e.value else '{}' end) v
  )
  select '', 'must be an object' where jsonb_typeof(document) is distinct from 'object'
  union all
  select '/' || pgmill.path_word(p.part), case when p.part in (select f.part from field f) then 'must be an object' else 'must be topics, workflows or reconciler' end
    from part p where p.part not in (select f.part from field f) or jsonb_typeof(p.value) <> 'object'
  union all
  select e.path, case e.part when 'topics' then 'must be words joined by dots, the first one job, at most 128 bytes' else 'must be 1 to 128 of letters, digits and _.-' end
    from entry e where e.name !~ case e.part when 'topics' then '^job(\.[A-Za-z0-9_-]+)+$' else '^[A-Za-z0-9_.-]+$' end or octet_length(e.name) > 128
  union all
  select e.path, 'must be an object' from entry e where jsonb_typeof(e.value) <> 'object'
  union all
  select v.path, coalesce('must be a whole number, 0 to ' || f.most, 'must be one of ' || (select string_agg(x.name, ', ') from field x where x.part = v.part))
    from value v left join field f on f.part = v.part and f.name = v.name
   where f.name is null
      or not case when jsonb_typeof(v.value) = 'number' then v.value::numeric between 0 and f.most and v.value::numeric % 1 = 0 else false end
$$;

-- Keeps a document's next version, one writer at a time, and says so in the audit.
create or replace function pgmill.keep_document(of_name text, document jsonb, why text) returns int
language plpgsql volatile
as $$
declare
  v int;
begin
  perform pg_advisory_xact_lock(hashtextextended('pgmill.document ' || of_name, 0));
  select coalesce(max(d.version), 0) + 1 into v from pgmill.document d where d.name = of_name;
  insert into pgmill.document (name, version, body, actor) values (of_name, v, document, pgmill.actor());
  insert into pgmill.audit (actor, action, subject, reason) values (pgmill.actor(), 'set_' || of_name, 'version ' || v, why);
  return v;
end $$;

create or replace function mill.set_timeouts(document jsonb, reason text default null) returns int
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  faults jsonb;
  v int;
begin
  select jsonb_agg(jsonb_build_object('path', f.path, 'message', f.message) order by f.path collate "C", f.message collate "C") into faults
    from (select * from pgmill.timeout_faults(document) limit 100) f;
  if faults is not null then
    raise exception using errcode = 'MI001', detail = faults::text,
      message = 'timeouts: ' || (select string_agg(trim(f ->> 'path' || ' ' || (f ->> 'message')), '; ') from jsonb_array_elements(faults) f);
  end if;
  v := pgmill.keep_document('timeouts', document, reason);
  delete from pgmill.topic_timeout;
  insert into pgmill.topic_timeout (topic, max_runtime, max_queue_wait, max_attempts)
  select t.key, nullif((t.value ->> 'timeout_seconds')::float8, 0) * interval '1 second', nullif((t.value ->> 'max_queue_wait_seconds')::float8, 0) * interval '1 second',
         (t.value ->> 'max_retries')::numeric::int + 1
    from jsonb_each(coalesce(document -> 'topics', '{}')) t
  union all
  select '*', nullif((r ->> 'running_timeout_seconds')::float8, 0) * interval '1 second', nullif((r ->> 'max_queue_wait_seconds')::float8, 0) * interval '1 second', null
    from (select document -> 'reconciler' as r) x where r is not null;
  return v;
end $$;
