-- Blobs: bytes by pointer, ptr://res/<id> or ptr://art/<id>. Written once, in the
-- transaction of what they belong to; read in pieces. A job's output goes with the job,
-- the others when their retention is over (pgmill.cleanup_classes).

-- The blob that a pointer is for and that the caller may see; null: none.
create or replace function pgmill.blob_id(pointer text) returns text
language plpgsql stable
as $$
begin
  return (select b.id from pgmill.blob b
           where pointer ~ '^ptr://(res|art)/[0-9a-f-]{36}$' and b.id = split_part(pointer, '/', 4) and b.kind = split_part(pointer, '/', 3) and pgmill.in_scope(b.scope));
end $$;

create or replace function mill.put_blob(content bytea, options jsonb default '{}') returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  id text := pgmill.new_id();
  scope text := coalesce(options ->> 'scope', 'install');
  keep text := coalesce(options ->> 'retention', 'standard');
  type text := coalesce(options ->> 'content_type', 'application/octet-stream');
begin
  if jsonb_typeof(options) is distinct from 'object' or exists (select from jsonb_each(options) o where o.key not in ('scope', 'retention', 'content_type', 'trace_id') or jsonb_typeof(o.value) <> 'string') then
    raise exception using errcode = 'MI001', message = 'options must be an object of the texts scope, retention, content_type and trace_id';
  elsif scope !~ '^(install|provider|org:[A-Za-z0-9_.-]{1,100})$' then
    raise exception using errcode = 'MI001', message = 'scope must be install, provider or org:<id>';
  elsif keep not in ('short', 'standard', 'audit') then
    raise exception using errcode = 'MI001', message = 'retention must be short (a day), standard (7) or audit (30)';
  elsif type !~ '^[A-Za-z0-9!#$&^_.+-]{1,64}/[A-Za-z0-9!#$&^_.+-]{1,64}(; ?charset=[A-Za-z0-9_-]{1,32})?$' then
    raise exception using errcode = 'MI001', message = 'content_type must be a media type such as text/plain';
  elsif options ->> 'trace_id' !~ '^[A-Za-z0-9_.:-]{1,128}$' then
    raise exception using errcode = 'MI001', message = 'trace_id must be 1 to 128 of letters, digits and _.:-';
  elsif content is null or octet_length(content) > 33554432 then
    raise exception using errcode = 'MI002', message = 'content must be at most 32 MiB';
  elsif not pgmill.in_scope(scope) then
    raise exception using errcode = '42501', message = 'tenant access denied';
  end if;
  insert into pgmill.blob (id, kind, scope, content_type, size, sha256, retention, expires_at, trace_id, bytes)
  values (id, 'art', scope, type, octet_length(content), sha256(content), keep,
          now() + case keep when 'short' then interval '1 day' when 'audit' then interval '30 days' else interval '7 days' end, options ->> 'trace_id', content);
  return 'ptr://art/' || id;
end $$;

create or replace function mill.read_blob(pointer text, at bigint default 0, most int default 524288) returns bytea
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return (select substring(b.bytes from least(read_blob.at, 2147483646)::int + 1 for read_blob.most) from pgmill.blob b where b.id = pgmill.blob_id(pointer) and read_blob.at between 0 and b.size);
end $$;

-- Null: there is none (any more).
create or replace function mill.blob(pointer text, out scope text, out content_type text, out size bigint, out sha256 bytea, out created_at timestamptz, out expires_at timestamptz)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  select b.scope, b.content_type, b.size, b.sha256, b.created_at, b.expires_at into scope, content_type, size, sha256, created_at, expires_at
    from pgmill.blob b where b.id = pgmill.blob_id(pointer);
end $$;

-- pgmill.settle_job for an output above 256 KiB: it is stored apart, as the bytes that a
-- host sends, who has seen to it that they are JSON. Nothing is made of them here: as
-- jsonb 32 MiB of small values would cost the server a gigabyte and half a minute.
create or replace function pgmill.settle_blob(claim bigint, content bytea) returns void
language plpgsql volatile
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  new_id text := pgmill.new_id();
  whose text;
begin
  insert into pgmill.blob (id, kind, scope, job, content_type, size, sha256, trace_id, bytes)
  select new_id, 'res', j.scope, j.id, 'application/json', octet_length(settle_blob.content), sha256(settle_blob.content), j.trace_id, settle_blob.content
    from pgmill.river_job r join pgmill.job j on j.id = r.args ->> 'job'
   where r.id = settle_blob.claim and r.state::text = 'running' and r.queue || '' = 'job'
  returning job into whose;
  perform pgmill.settle_job(settle_blob.claim, null); -- or it is not ours any more
  update pgmill.job j set output_blob = new_id where j.id = whose;
end $$;

-- The same for what came as jsonb, as the text that it would be inline.
create or replace function pgmill.settle_large(claim bigint, output jsonb) returns void
language sql volatile
as $$ select pgmill.settle_blob(settle_large.claim, convert_to(settle_large.output::text, 'UTF8')) $$;
