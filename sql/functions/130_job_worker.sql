-- Outside workers: programs in any language that claim jobs by SQL, or by HTTP, which
-- is these functions behind a route. A claim is good for lease_secs from each renewal
-- but for no longer than the job may run; its token only its holder knows; a call without the right one, or after the
-- lease was lost, is refused with MI101. Claim in a transaction of its own, READ COMMITTED:
-- one that is left idle for five seconds after it is ended by the server, for nobody is
-- admitted meanwhile.

-- The instance that a worker's name stands for: a name of a key's own scope, so that
-- two scopes' workers of one name are two. Names have no /, nor have hosts.
create or replace function pgmill.worker_id(name text) returns text
language plpgsql stable
as $$
begin
  return coalesce(case when current_setting('role') = 'pgmill_api' then nullif(current_setting('pgmill.scope', true), '*') || '/' end, '') || name;
end $$;

create or replace function pgmill.worker_name(id text) returns text
language sql immutable parallel safe
as $$ select substr(id, strpos(id, '/') + 1) $$;

-- Is this instance one that may take jobs of a scope?
create or replace function pgmill.serves(id text, scope text) returns boolean
language sql immutable parallel safe
as $$ select strpos(id, '/') = 0 or starts_with(id, scope || '/') $$;

drop function if exists mill.claim_jobs(text, text[], int, int); -- it knew no pools
create or replace function mill.claim_jobs(worker text, topics text[] default null, n int default 1, lease_secs int default 60, pools text[] default null, labels jsonb default null)
returns table (job_id text, token text, topic text, input jsonb, attempt int, deadline_at timestamptz)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return query select c.job_id, c.token, c.topic, c.input, c.attempt, c.deadline_at from pgmill.claim_for(worker, topics, n, lease_secs, pools, labels) c;
end $$;

-- Without topics those that go to the pools. With both a topic counts that is of one of the
-- pools; what names no pools has its topics wherever they are mapped (see pgmill.suits).
create or replace function pgmill.claim_for(worker text, topics text[], n int, lease_secs int, pools text[], labels jsonb)
returns table (claim bigint, job_id text, token text, topic text, input jsonb, attempt int, deadline_at timestamptz, scope text, trace_id text)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  me constant text := pgmill.worker_id(claim_for.worker);
  takes constant text[] := case when cardinality(claim_for.topics) > 0 then claim_for.topics else pgmill.topics_of(claim_for.pools) end;
begin
  if claim_for.worker is null or claim_for.worker !~ '^[A-Za-z0-9_.:@-]{1,100}$' then
    raise exception using errcode = 'MI001', message = 'worker must be 1 to 100 of letters, digits and _.:@-';
  elsif claim_for.pools is null and coalesce(cardinality(claim_for.topics), 0) = 0 or cardinality(claim_for.topics) > 100
        or exists (select from unnest(claim_for.topics) t where t is null or t !~ '^job(\.[A-Za-z0-9_-]+)+$') then
    raise exception using errcode = 'MI001', message = 'topics must be 1 to 100 topics such as job.demo.echo, or none beside pools: all that go to them';
  elsif cardinality(claim_for.pools) not between 1 and 100 or exists (select from unnest(claim_for.pools) p where p is null or p !~ '^[A-Za-z0-9_.-]{1,64}$') then
    raise exception using errcode = 'MI001', message = 'pools must be 1 to 100 names of letters, digits and _.-';
  elsif not pgmill.are_labels(claim_for.labels) then
    raise exception using errcode = 'MI001', message = 'labels must be at most 50 pairs of texts, names of 1 to 100 characters and values of at most 256';
  elsif claim_for.n is null or claim_for.n not between 1 and 1000 then
    raise exception using errcode = 'MI001', message = 'n must be 1 to 1000';
  elsif claim_for.lease_secs is null or claim_for.lease_secs not between 1 and 86400 then
    raise exception using errcode = 'MI001', message = 'lease_secs must be 1 to 86400';
  elsif exists (select from pgmill.instance i where i.kind = 'worker' and i.id = me) then
    raise exception using errcode = 'MI001', message = 'worker must be a name that no host has';
  end if;
  -- Nobody else admits until this transaction ends, so it must not be left open.
  if coalesce(nullif(current_setting('idle_in_transaction_session_timeout'), '0')::interval, interval '1 day') > interval '5 seconds' then
    perform set_config('idle_in_transaction_session_timeout', '5s', true);
  end if;
  -- Written only where there is something new: a row that is locked first gives this
  -- transaction its number, and then admission moves no mark.
  if not exists (select from pgmill.instance i
                  where i.kind = 'outside' and i.id = me and i.last_seen >= now() - interval '1 second' and i.deregistered_at is null
                    and i.ttl = claim_for.lease_secs * interval '1 second' + interval '30 seconds'
                    and i.pools is not distinct from claim_for.pools and i.labels is not distinct from claim_for.labels) then
    insert into pgmill.instance as i (kind, id, ttl, pools, labels) values ('outside', me, claim_for.lease_secs * interval '1 second' + interval '30 seconds', claim_for.pools, claim_for.labels)
    on conflict (kind, id) do update
       set ttl = excluded.ttl, last_seen = now(), deregistered_at = null, pools = excluded.pools, labels = excluded.labels;
  end if;
  insert into pgmill.instance_function (instance, function) select me, t from unnest(takes) t on conflict do nothing;
  return query
  with got as materialized (
    select * from pgmill.admit(me, takes, claim_for.n, claim_for.pools, claim_for.labels)
  ), leased as (
    insert into pgmill.job_lease (claim, worker, token, ttl, until, over_at)
    select g.claim, me, g.claim || '-' || encode(substring(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) from 1 for 16), 'hex') || '-' || g.attempt,
           claim_for.lease_secs * interval '1 second', least(now() + claim_for.lease_secs * interval '1 second', g.deadline_at, now() + g.max_runtime),
           least(g.deadline_at, now() + g.max_runtime)
      from got g
    returning claim, token
  )
  select g.claim, g.job, l.token, g.topic, g.input, g.attempt, least(g.deadline_at, now() + g.max_runtime), g.scope, g.trace_id
    from got g
    join leased l on l.claim = g.claim;
end $$;

-- The claim that a token is for, if it still is: the job's, running, the lease not over.
-- Locks the lease. mine false: it is gone; whoever asks must drop the work.
create or replace function pgmill.leased(id text, token text, out claim bigint, out mine boolean)
language plpgsql volatile
set enable_seqscan = off
as $$
#variable_conflict use_column
begin
  select l.claim, l.until > clock_timestamp() and exists (select from pgmill.river_job j where j.id = l.claim and j.state::text = 'running' and j.args ->> 'job' = leased.id and pgmill.in_scope(j.args ->> 'scope'))
    into claim, mine
    from pgmill.job_lease l
   where l.claim = case when leased.token ~ '^\d{1,18}-' then split_part(leased.token, '-', 1)::bigint end and l.token = leased.token
     for update;
  mine := coalesce(mine, false);
end $$;

-- Refuses a call whose token is not good. To who may not see the job there is none.
create or replace function pgmill.lease_lost(id text) returns void
language plpgsql
as $$
begin
  if current_setting('role') = 'pgmill_api' and not exists (select from pgmill.job j where j.id = lease_lost.id and pgmill.in_scope(j.scope)) then
    raise exception using errcode = 'P0002', message = 'no such job';
  end if;
  raise exception using errcode = 'MI101', message = 'lease_lost: another worker may have this job; drop its result';
end $$;

create or replace function mill.renew_jobs(ids text[], tokens text[]) returns table (job_id text, cancelled boolean)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  i int;
  l record;
begin
  if ids is null or tokens is null or cardinality(ids) <> cardinality(tokens) then
    raise exception using errcode = 'MI001', message = 'ids and tokens must be arrays of one length';
  end if;
  for i in 1..cardinality(ids) loop
    select * into l from pgmill.leased(ids[i], tokens[i]);
    if l.mine then
      update pgmill.job_lease x set until = least(now() + x.ttl, x.over_at) where x.claim = l.claim;
      update pgmill.instance y set last_seen = now() from pgmill.job_lease x
       where x.claim = l.claim and y.kind = 'outside' and y.id = x.worker and y.last_seen < now() - interval '1 second';
    end if;
    job_id := ids[i];
    cancelled := not l.mine; -- cancelled or lost: either way the work is to be dropped
    return next;
  end loop;
end $$;

create or replace function mill.progress_job(id text, token text, percent int, message text default null) returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if percent is null or percent not between 0 and 100 then
    raise exception using errcode = 'MI001', message = 'percent must be 0 to 100';
  elsif length(message) > 200 then
    raise exception using errcode = 'MI002', message = 'message is longer than 200 characters';
  elsif message ~ '[[:cntrl:]]' then
    raise exception using errcode = 'MI001', message = 'message must have no control characters in it';
  elsif not (select l.mine from pgmill.leased(progress_job.id, progress_job.token) l) then
    perform pgmill.lease_lost(progress_job.id);
  end if;
  perform pgmill.note_progress(progress_job.id, percent, message);
end $$;

create or replace function pgmill.note_progress(id text, percent int, message text) returns void
language sql volatile
as $$
  insert into pgmill.job_progress as p (job, percent, message) values (note_progress.id, note_progress.percent, note_progress.message)
  on conflict (job) do update set percent = excluded.percent, message = excluded.message, at = now()
$$;

create or replace function mill.complete_job(id text, token text, output jsonb default '{}') returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  l record;
  ended text; -- a record that was not assigned has no fields to ask for
  bytes int;
begin
  bytes := octet_length(output::text);
  if bytes > 33554432 then
    raise exception using errcode = 'MI002', message = 'output is larger than 32 MiB: store it elsewhere and point to it';
  end if;
  select * into l from pgmill.leased(complete_job.id, complete_job.token);
  if l.mine and bytes > 262144 then
    perform pgmill.settle_large(l.claim, complete_job.output);
    return 'SUCCEEDED';
  elsif l.mine then
    select e.state into ended from pgmill.end_claims(array[l.claim], null, null, null, array[complete_job.output]) e;
  end if;
  if not l.mine or ended is null then
    perform pgmill.lease_lost(complete_job.id);
  end if;
  return ended;
end $$;

-- Refuses what is no reason for whoever gives it: an author's has a dot, and of those
-- without one, which are pgmill's and may act, only these are theirs to say (C52). null is
-- left to the caller.
create or replace function pgmill.check_reason(reason text, ours text[]) returns void
language plpgsql immutable
as $$
begin
  if reason !~ '^[a-z0-9_.]{1,64}$' then
    raise exception using errcode = 'MI001', message = 'reason must be a code of a-z, 0-9, _ and ., at most 64';
  elsif strpos(reason, '.') = 0 and reason <> all (ours) then
    raise exception using errcode = 'MI001',
      message = 'reason must have a dot in it, as stock.empty has, or be ' || array_to_string(ours, ', ') || ': other codes without one are pgmill''s own';
  end if;
end $$;

create or replace function mill.fail_job(id text, token text, reason text, retry boolean default true) returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  l record;
  ended text; -- a record that was not assigned has no fields to ask for
begin
  perform pgmill.check_reason(coalesce(reason, ''), '{handler_error,panic,bad_data,schema_validation_failed,bad_output,conflict,permission_denied}');
  select * into l from pgmill.leased(fail_job.id, fail_job.token);
  if l.mine then
    select e.state into ended from pgmill.end_claims(array[l.claim], array['failed'], array[fail_job.reason], array[not coalesce(retry, true)], array[null::jsonb]) e;
  end if;
  if not l.mine or ended is null then
    perform pgmill.lease_lost(fail_job.id);
  end if;
  return ended;
end $$;

create or replace function mill.release_job(id text, token text) returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  l record;
begin
  select * into l from pgmill.leased(release_job.id, release_job.token);
  if not l.mine or not exists (select from pgmill.release_claims(array[l.claim])) then
    perform pgmill.lease_lost(release_job.id);
  end if;
  return 'PENDING';
end $$;

-- Notes that a worker's result came too late. Its refusal (MI101) undoes its own
-- transaction, so this is another one; it shows where hosts' late results do and changes
-- nothing. The token says which attempt it is of. False: that claim still counts, the
-- attempt ended by its worker's own word (this is a repeat), it was noted before, or the job is
-- not the caller's to see.
create or replace function mill.late_job(id text, token text) returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  j record;
  ended record;
  number int;
begin
  if (token ~ '^\d{1,18}-[0-9a-f]{32}-\d{1,9}$') is not true or (select l.mine from pgmill.leased(late_job.id, late_job.token) l) then
    return false;
  end if;
  number := split_part(token, '-', 3)::int;
  select x.state, x.attempt, x.instance, x.reason into j from pgmill.job x where x.id = late_job.id and pgmill.in_scope(x.scope) for update;
  if not found or number not between 1 and j.attempt + 1
     or exists (select from pgmill.job_attempt a where a.job = late_job.id and a.attempt = number and a.reason in ('late_result', 'lease_lost')) then
    return false;
  end if;
  select a.instance, a.reason into ended from pgmill.job_attempt a where a.job = late_job.id and a.attempt = number limit 1;
  if not found and j.attempt = number and j.state <> 'CANCELLED' then
    select j.instance as instance, coalesce(j.reason, 'succeeded') as reason into ended;
  elsif not found then
    select l.worker as instance, null::text as reason into ended from (select) x left join pgmill.job_lease l on l.token = late_job.token and l.claim = split_part(late_job.token, '-', 1)::bigint;
  end if;
  if ended.reason not in ('host_lost', 'timeout', 'deadline') then
    return false;
  end if;
  perform pgmill.late_result(late_job.id, number, ended.instance);
  return true;
end $$;
