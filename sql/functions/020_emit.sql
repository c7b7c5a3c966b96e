-- Emit: one row in the author's transaction, checked here and nowhere else, so that
-- Go, triggers and other languages are refused alike.

-- The bell: a transaction that emits rings at its commit if a host hears it and none
-- is awake (id below the sequence pgmill.bell, see pgmill.arm), which is decided at
-- the first emit; a host that falls asleep meanwhile looks for as long again as it was
-- awake. pgmill.quiet = on keeps a transaction silent, as PREPARE TRANSACTION needs. A
-- queue that fills up is left alone: a bell must never fail a business transaction.
-- Answers true.
create or replace function pgmill.ring() returns boolean
language plpgsql volatile
as $$
begin
  if current_setting('pgmill.quiet', true) is distinct from 'on' and pg_notification_queue_usage() < 0.5 then
    perform pg_notify('pgmill', '');
  end if;
  return true;
end $$;

-- Could check_event refuse this data for what it holds? A cheap no for most; a yes only
-- costs the look. The last pattern is for 257 characters and more. The list is also
-- platform/emit_clean.go's. Not immutable, for pg_column_size is not, and then it would
-- not be inlined.
create or replace function pgmill.suspicious(data jsonb) returns boolean
language sql stable parallel safe
as $$
  select pg_column_size(data) > 256 or lower(data::text collate "C") like any (array['%://%', '%=%', '%\\%', '%-----%', '%eyj%', '%akia%', '%asia%', '%gh_\_%', '%github\_%',
           '%xox%', '%sk-%', '%sk\_%', '%aiza%', '%glpat%', '%bearer%', '%pass%', '%secret%', '%token%', '%key%',
           '_________________________________________________________________________________________________________________________________________________________________________________________________________________________________________________________________%'])
$$;

-- The trace that this transaction is of: what it emits and submits is of it, too, unless it
-- names another. A host sets it for the handler of a job. null: there is none, or none of
-- the form. Must stay one expression, to be inlined.
create or replace function pgmill.trace() returns text
language sql stable parallel safe
as $$ select substring(current_setting('pgmill.trace_id', true) from '^[A-Za-z0-9_.:-]{1,128}$') $$;

-- The shortest way in, for platform.Emit, which takes it for events so plain that
-- mill.emit could only accept them: one insert, without a function's overhead. It
-- refuses more than mill.emit, and nothing gets in that mill.emit refuses (N5).
-- Everybody else calls mill.emit. id is there to be returned. Each operator here
-- costs every emitter its share of a microsecond: hence the strings put together.
create or replace view mill.outbox as
select id, scope, type, target, key, trace_id, data
  from pgmill.event
 where octet_length(type || target || coalesce(key, '')) <= 128 and not starts_with(type, 'schedule.')
   and (type || ' ' || target) ~ '^[a-z0-9_]+(?:\.[a-z0-9_]+)* [A-Za-z0-9_.:/@#+=~-]+$' -- one blank: neither holds any
   and (key is null or key ~ '^[ -~]+$')
   and scope = 'install' and (trace_id is null or trace_id ~ '^[A-Za-z0-9_.:-]{1,128}$')
   and jsonb_typeof(data) = 'object' and not pgmill.suspicious(data)
   and case when id < pg_sequence_last_value('pgmill.bell'::regclass) then pgmill.ring() else true end
  with check option;
alter view mill.outbox alter column trace_id set default pgmill.trace();
comment on view mill.outbox is 'The way of platform.Emit; call mill.emit instead, which says what is wrong.';

-- Why one event is refused, as an error; returns if it is not.
create or replace function pgmill.check_event(type text, target text, key text, data jsonb, scope text, idempotency_key text, trace_id text) returns void
language plpgsql immutable
as $$
declare
  s text;
begin
  if type is null or type !~ '^[a-z0-9_]+(\.[a-z0-9_]+)*$' then
    raise exception using errcode = 'MI001', message = 'event type must be lower-case words joined by dots, [a-z0-9_]';
  elsif starts_with(type, 'schedule.') then
    raise exception using errcode = 'MI001', message = 'event types under schedule. are ticks, which only a schedule emits: mill.trigger_schedule';
  elsif octet_length(type) > 128 then
    raise exception using errcode = 'MI002', message = format('event type has %s bytes; at most 128', octet_length(type));
  elsif target is null or target !~ '^[A-Za-z0-9_.:/@#+=~-]+$' then
    raise exception using errcode = 'MI001', message = 'event target must be made of letters, digits and _.:/@#+=~-';
  elsif octet_length(target) > 200 then
    raise exception using errcode = 'MI002', message = format('event target has %s bytes; at most 200', octet_length(target));
  elsif key = '' or key ~ '[[:cntrl:]]' then
    raise exception using errcode = 'MI001', message = 'event key must not be empty or hold control characters; leave it null';
  elsif octet_length(key) > 200 then
    raise exception using errcode = 'MI002', message = format('event key has %s bytes; at most 200', octet_length(key));
  elsif scope is null or scope !~ '^(install|provider|org:[A-Za-z0-9_.-]{1,100})$' then
    raise exception using errcode = 'MI001', message = 'scope must be install, provider or org:<id>';
  elsif data is null or jsonb_typeof(data) <> 'object' then
    raise exception using errcode = 'MI003', message = 'event data must be a JSON object of pointers';
  elsif octet_length(data::text) > 4096 then
    raise exception using errcode = 'MI002', message = format('event data has %s bytes; at most 4096: store it and point to it', octet_length(data::text));
  elsif idempotency_key = '' or idempotency_key ~ '[[:cntrl:]]' or trace_id = '' or trace_id ~ '[^A-Za-z0-9_.:-]' then
    raise exception using errcode = 'MI001', message = 'idempotency_key and trace_id must not be empty or hold control characters';
  elsif octet_length(idempotency_key) > 200 or octet_length(trace_id) > 128 then
    raise exception using errcode = 'MI002', message = 'idempotency_key has at most 200 bytes, trace_id 128';
  end if;

  for s in
    select v #>> '{}' from jsonb_path_query(data, 'strict $.**') v where jsonb_typeof(v) = 'string'
    union all
    select k from jsonb_path_query(data, 'strict $.**') o, jsonb_object_keys(case when jsonb_typeof(o) = 'object' then o else '{}' end) k
  loop
    if octet_length(s) > 256 then
      raise exception using errcode = 'MI002', message = format('a string in event data has %s bytes; at most 256: store it and point to it', octet_length(s));
    elsif s ~ '://[^/?#[:space:]]*@'
       or s ~* '[?&](sig|signature|x-amz-signature|token|access_token|api_?key|password)='
       or s ~ '-----BEGIN|eyJ[A-Za-z0-9_-]{8,}\.|(AKIA|ASIA)[0-9A-Z]{12}|gh[pousr]_[A-Za-z0-9]{20}|github_pat_|xox[abprs]-|\msk[-_][A-Za-z0-9_-]{16}|AIza[0-9A-Za-z_-]{30}|glpat-'
       or s ~* '\mbearer [a-z0-9._-]{16}|password[ ]*[=:]' then
      raise exception using errcode = 'MI003', message = 'event data holds what looks like a credential; store it where secrets live and point to it';
    end if;
  end loop;
  -- A string that is named as a credential, {"password": "…"}; {"api_key_id": "…"} is a pointer.
  if exists (select from jsonb_path_query(data, 'strict $.**') o, jsonb_each(case when jsonb_typeof(o) = 'object' then o else '{}' end) m
              where jsonb_typeof(m.value) = 'string' and m.value <> '""'
                and m.key ~* '(password|passwd|passphrase|client_?secret|secret_?key|api_?key|access_?key|private_?key|(access|refresh|auth|bearer|id)_?token)$') then
    raise exception using errcode = 'MI003', message = 'event data holds what is named as a credential; store it where secrets live and point to it';
  end if;
end $$;

-- Records one event in the caller's transaction and returns its id. options:
-- idempotency_key (a repeated key returns the first id, MI004 with another body),
-- trace_id (else the transaction's). Errors: MI001 charset, MI002 size, MI003 not a pointer.
create or replace function mill.emit(type text, target text, key text default null, data jsonb default '{}',
                                     scope text default 'install', options jsonb default '{}')
returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  new_id bigint;
begin
  if emit.options is distinct from '{}' then
    return pgmill.emit_with(emit.type, emit.target, emit.key, emit.data, emit.scope, emit.options);
  end if;
  if (emit.type ~ '^[a-z0-9_]+(\.[a-z0-9_]+)*$' and octet_length(emit.type) <= 128 and not starts_with(emit.type, 'schedule.')
      and emit.target ~ '^[A-Za-z0-9_.:/@#+=~-]+$' and octet_length(emit.target) <= 200
      and (emit.key is null or emit.key <> '' and octet_length(emit.key) <= 200 and emit.key !~ '[[:cntrl:]]')
      and (emit.scope = 'install' or emit.scope ~ '^(provider|org:[A-Za-z0-9_.-]{1,100})$')
      and jsonb_typeof(emit.data) = 'object' and not pgmill.suspicious(emit.data)) is not true then
    perform pgmill.check_event(emit.type, emit.target, emit.key, emit.data, emit.scope, null, null);
  end if;
  insert into pgmill.event (scope, type, target, key, data, trace_id)
  values (emit.scope, emit.type, emit.target, emit.key, emit.data, pgmill.trace())
  returning id into new_id;
  if new_id < pg_sequence_last_value('pgmill.bell'::regclass) then
    perform pgmill.ring();
  end if;
  return new_id;
end $$;

-- mill.emit for what has options.
create or replace function pgmill.emit_with(type text, target text, key text, data jsonb, scope text, options jsonb)
returns bigint
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  unknown text;
  idem text;
  trace text;
  hash bytea;
  new_id bigint;
  first record;
begin
  if emit_with.options is null or jsonb_typeof(emit_with.options) <> 'object' then
    raise exception using errcode = 'MI001', message = 'options must be a JSON object';
  end if;
  select string_agg(k, ', ') into unknown from jsonb_object_keys(emit_with.options) k where k not in ('idempotency_key', 'trace_id');
  if unknown is not null then
    raise exception using errcode = 'MI001', message = 'unknown emit options; known are idempotency_key and trace_id';
  end if;
  idem := emit_with.options ->> 'idempotency_key';
  trace := coalesce(emit_with.options ->> 'trace_id', pgmill.trace());
  perform pgmill.check_event(emit_with.type, emit_with.target, emit_with.key, emit_with.data, emit_with.scope, idem, trace);

  new_id := nextval('pgmill.event_id');
  if idem is not null then
    hash := sha256(convert_to(jsonb_build_array(emit_with.target, emit_with.key, emit_with.data)::text, 'UTF8'));
    -- Waits for a concurrent holder of the key; the loser reads what the winner wrote.
    insert into pgmill.event_key as k (scope, type, key, event_id, body, trace_id)
    values (emit_with.scope, emit_with.type, idem, new_id, hash, trace)
    on conflict (scope, type, key) do update
       set event_id = excluded.event_id, body = excluded.body, at = now()
     where k.at < now() - interval '7 days'
    returning event_id into new_id;
    if not found then
      select k.event_id, k.body into first from pgmill.event_key k
       where k.scope = emit_with.scope and k.type = emit_with.type and k.key = idem;
      if first.body is distinct from hash then
        raise exception using errcode = 'MI004', message = 'idempotency_key was used for another event within seven days';
      end if;
      return first.event_id;
    end if;
  end if;
  insert into pgmill.event (id, scope, type, target, key, trace_id, data)
  values (new_id, emit_with.scope, emit_with.type, emit_with.target, emit_with.key, trace, emit_with.data);
  if new_id < pg_sequence_last_value('pgmill.bell'::regclass) then
    perform pgmill.ring();
  end if;
  return new_id;
end $$;

-- Many events in one call, all or nothing, ids in the order given. An event is
-- {type, target, key?, data?, scope?, idempotency_key?, trace_id?}.
create or replace function mill.emit_many(events jsonb) returns bigint[]
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  ids bigint[];
begin
  if events is null or jsonb_typeof(events) <> 'array' then
    raise exception using errcode = 'MI001', message = 'events must be a JSON array';
  end if;
  if exists (select from jsonb_array_elements(events) e
              where jsonb_typeof(e) <> 'object' or e ? 'idempotency_key' or jsonb_typeof(e -> 'data') <> 'object' or pgmill.suspicious(e -> 'data')
                 or exists (select from jsonb_object_keys(e) k where k not in ('type', 'target', 'key', 'data', 'scope', 'trace_id'))) then
    select array_agg(pgmill.emit_item(e) order by n) into ids
      from (select e, n from jsonb_array_elements(events) with ordinality as x(e, n) order by n) o;
    return ids;
  end if;
  perform pgmill.check_event(e.type, e.target, e.key, coalesce(e.data, '{}'), coalesce(e.scope, 'install'), null, e.trace_id)
     from jsonb_to_recordset(events) as e(type text, target text, key text, data jsonb, scope text, trace_id text)
    where (e.type ~ '^[a-z0-9_]+(\.[a-z0-9_]+)*$' and octet_length(e.type) <= 128 and not starts_with(e.type, 'schedule.')
           and e.target ~ '^[A-Za-z0-9_.:/@#+=~-]+$' and octet_length(e.target) <= 200
           and (e.key is null or e.key <> '' and octet_length(e.key) <= 200 and e.key !~ '[[:cntrl:]]')
           and coalesce(e.scope, 'install') ~ '^(install|provider|org:[A-Za-z0-9_.-]{1,100})$'
           and coalesce(jsonb_typeof(e.data), 'object') = 'object'
           and (e.trace_id is null or e.trace_id ~ '^[A-Za-z0-9_.:-]{1,128}$')) is not true;
  with new as (
    select nextval('pgmill.event_id') as id, e.type, e.target, e.key, e.data, e.scope, e.trace_id
      from rows from (jsonb_to_recordset(events) as (type text, target text, key text, data jsonb, scope text, trace_id text)) as e
  ), put as (
    insert into pgmill.event (id, scope, type, target, key, trace_id, data)
    select id, coalesce(scope, 'install'), type, target, key, coalesce(trace_id, pgmill.trace()), coalesce(data, '{}') from new
    returning id
  )
  select array_agg(id order by id) into ids from put;
  if ids[1] < pg_sequence_last_value('pgmill.bell'::regclass) then
    perform pgmill.ring();
  end if;
  return coalesce(ids, '{}');
end $$;

create or replace function pgmill.emit_item(e jsonb) returns bigint
language plpgsql volatile
as $$
begin
  if jsonb_typeof(e) <> 'object' then
    raise exception using errcode = 'MI001', message = 'an event must be a JSON object';
  end if;
  return pgmill.emit_with(e ->> 'type', e ->> 'target', e ->> 'key', coalesce(e -> 'data', '{}'), coalesce(e ->> 'scope', 'install'),
                          e - '{type,target,key,data,scope}'::text[]);
end $$;
