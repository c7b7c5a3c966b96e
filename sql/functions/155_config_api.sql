-- The configuration's documents, pools and timeouts, as the API has them. They are the
-- whole install's, so only keys that see all of it come to them, and pgmill_api alone
-- is granted these.

create or replace function pgmill.check_install() returns void
language plpgsql stable
as $$
begin
  if not pgmill.in_scope('install') then
    raise exception using errcode = '42501', message = 'tenant access denied';
  end if;
end $$;

-- A document as it counts now, version 0 and {} if none was set, and the last change
-- since then that was refused. Index: audit_rejected.
create or replace function pgmill.get_document(of_name text) returns jsonb
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  d pgmill.document;
  r record;
begin
  perform pgmill.check_install();
  select * into d from pgmill.document x where x.name = of_name order by x.version desc limit 1;
  select a.at, a.actor, a.reason into r from pgmill.audit a
   where a.action in ('pools_rejected', 'timeouts_rejected') and a.action = of_name || '_rejected' and a.at > coalesce(d.at, '-infinity')
   order by a.at desc limit 1;
  return jsonb_strip_nulls(jsonb_build_object('set_by', d.actor, 'set_at', pgmill.rfc3339(d.at),
           'rejected', case when r.at is not null then jsonb_build_object('at', pgmill.rfc3339(r.at), 'by', r.actor, 'reason', r.reason) end))
      || jsonb_build_object('name', of_name, 'version', coalesce(d.version, 0), 'document', coalesce(d.body, '{}'));
end $$;

create or replace function pgmill.rfc3339(at timestamptz) returns text
language sql stable parallel safe
as $$ select to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') $$;

create or replace function pgmill.set_document(of_name text, document jsonb, reason text) returns int
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pgmill.check_install();
  if reason !~ '^[a-z0-9_.]{1,64}$' then
    raise exception using errcode = 'MI001', message = 'reason must be a code of a-z, 0-9, _ and ., at most 64';
  end if;
  return case of_name when 'pools' then mill.set_pools(document, reason) when 'timeouts' then mill.set_timeouts(document, reason) end;
end $$;

-- Says that a change was refused: the refusal has undone its own transaction, so this is
-- another one. What was refused is not kept; version is the one that goes on counting.
create or replace function pgmill.note_rejected(of_name text) returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pgmill.check_install();
  insert into pgmill.audit (actor, action, subject, reason)
  values (pgmill.actor(), of_name || '_rejected', 'version ' || (select coalesce(max(d.version), 0) from pgmill.document d where d.name = of_name), 'schema_validation_failed');
end $$;
