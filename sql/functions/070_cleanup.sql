-- Clean-ups: what pgmill itself leaves behind and what of that may go. A new kind of
-- leftovers is one entry here. Its rights (900_grants), its preview and its clean-up
-- follow from it; tables that no entry names cannot be cleaned, whatever their age.

-- A class is one table or several, children first. range says, of a row x, that it is in
-- scope $2 and older than $1, by an index in the order of sort; due what else makes it a
-- leftover; bare that nothing hangs on it any more; kept_if that it is still needed all
-- the same, and kept_by for what. old is the first three. The last table of a class is
-- what it is about: mill.retention_preview counts its rows, whatever hangs on them.
-- orgs: an organization may clean its own (N80). at_least is what no manifest goes below.
drop function if exists pgmill.cleanup_classes(); -- its columns were others
create or replace function pgmill.cleanup_classes()
returns table (class text, part int, tbl text, old text, sort text, at text, kept_if text, kept_by text, orgs boolean, at_least interval, range text, due text)
language sql immutable
as $$
  select v.class, v.part, v.tbl, concat_ws(' and ', v.range, v.due, v.bare), v.sort, v.at, v.kept_if, v.kept_by, v.orgs, v.at_least, v.range, coalesce(v.due, 'true')
    from (values
    -- A repeated key is known for seven days (mill.emit); one hour more, for emitters
    -- whose transaction began before.
    ('idempotency_keys', 1, 'event_key', 'x.scope = $2 and x.at < $1 - interval ''1 hour''', null, null, 'x.at', 'x.at', null, null, true, interval '7 days'),
    -- Processes that are gone. Not while one's claims wait to be rescued, nor within the
    -- hour in which its sessions are still ended.
    ('instances', 1, 'instance_function', 'x.instance = any (array(
        select i.id from pgmill.instance i
         where i.kind in (''worker'', ''outside'') and i.scope = $2 and i.since < $1 and i.last_seen < $1 and not pgmill.is_live(i.last_seen, i.ttl, i.deregistered_at)
           and exists (select from pgmill.instance_function f where f.instance = i.id)
           and not pgmill.has_claims(i.id)
         order by i.since limit 100))', null, null, 'x.instance', 'null::timestamptz', null, null, false, interval '1 hour'),
    ('instances', 2, 'instance', 'x.scope = $2 and x.since < $1', 'x.last_seen < $1 and not pgmill.is_live(x.last_seen, x.ttl, x.deregistered_at)',
        '(pgmill.has_claims(x.id) or not exists (select from pgmill.instance_function f where f.instance = x.id))', 'x.since', 'x.last_seen',
        'pgmill.has_claims(x.id)', 'claims', false, interval '1 hour'),
    -- Jobs that have ended, with what is noted of them. Not while a dead letter may be
    -- retried: that is a clone of the job. (No exists: that might read all dead letters.)
    ('jobs', 1, 'job_attempt', 'x.job = any (array(
        select j.id from pgmill.job j
         where j.scope = $2 and j.updated_at < $1 and j.state not in (''PENDING'', ''APPROVAL_REQUIRED'')
           and exists (select from pgmill.job_attempt a where a.job = j.id)
           and not exists (select from pgmill.dead_letter d where d.job = j.id)
         order by j.updated_at limit 100))', null, null, 'x.job', 'null::timestamptz', null, null, true, interval '1 day'),
    ('jobs', 2, 'job_progress', 'x.job = any (array(
        select j.id from pgmill.job j
         where j.scope = $2 and j.updated_at < $1 and j.state not in (''PENDING'', ''APPROVAL_REQUIRED'')
           and exists (select from pgmill.job_progress a where a.job = j.id)
         order by j.updated_at limit 100))', null, null, 'x.job', 'null::timestamptz', null, null, true, interval '1 day'),
    ('jobs', 3, 'blob', 'x.job = any (array(
        select j.id from pgmill.job j
         where j.scope = $2 and j.updated_at < $1 and j.state not in (''PENDING'', ''APPROVAL_REQUIRED'')
           and j.output_blob is not null and exists (select from pgmill.blob a where a.job = j.id)
         order by j.updated_at limit 100))', null, null, 'x.job', 'null::timestamptz', null, null, true, interval '1 day'),
    ('jobs', 4, 'job', 'x.scope = $2 and x.updated_at < $1', 'x.state not in (''PENDING'', ''APPROVAL_REQUIRED'')',
        'not exists (select from pgmill.job_attempt a where a.job = x.id and not exists (select from pgmill.dead_letter d where d.job = x.id))
         and not exists (select from pgmill.job_progress p where p.job = x.id)
         and not exists (select from pgmill.blob b where b.job = x.id)', 'x.updated_at', 'x.updated_at',
        '(select true from pgmill.dead_letter d where d.job = x.id) is true', 'dead_letter', true, interval '1 day'),
    ('dead_letters', 1, 'dead_letter', 'x.scope = $2 and x.died_at < $1', null, null, 'x.died_at', 'x.died_at', null, null, true, interval '1 day'),
    -- What a function put away, once the time that it was put for is over.
    ('blobs', 1, 'blob', 'x.scope = $2 and x.expires_at < $1', null, null, 'x.expires_at', 'x.expires_at', null, null, true, interval '1 hour'),
    ('job_keys', 1, 'job_key', 'x.scope = $2 and x.at < $1 - interval ''1 hour''', null, null, 'x.at', 'x.at', null, null, true, interval '7 days')
    ) v(class, part, tbl, range, due, bare, sort, at, kept_if, kept_by, orgs, at_least)
$$;

create or replace function pgmill.has_claims(instance text) returns boolean
language sql stable
as $$ select exists (select from pgmill.river_job j where j.state = 'running' and j.attempted_by[array_upper(j.attempted_by, 1)] = has_claims.instance) $$;

-- Where the rows of a class that may go come from.
create or replace function pgmill.cleanup_source(tbl text, old text, sort text, kept_if text) returns text
language sql immutable
as $$ select format('from pgmill.%I x where %s and not (%s) order by %s limit $3', tbl, old, coalesce(kept_if, 'false'), sort) $$;

-- Puts retention in place: {name, class, scope, keep_seconds, batch}. Its function is
-- declared before.
create or replace function pgmill.declare_retention(rules jsonb) returns void
language plpgsql volatile
as $$
declare
  r record;
begin
  for r in
    select x.* from jsonb_to_recordset(rules) as x(name text, class text, scope text, keep_seconds float8, batch int) order by x.name
  loop
    perform pgmill.check_retention(r.name, r.class, r.scope, make_interval(secs => r.keep_seconds));
    insert into pgmill.retention as t (name, class, scope, keep, batch)
    values (r.name, r.class, r.scope, make_interval(secs => r.keep_seconds), r.batch)
    on conflict (name) do update set class = excluded.class, scope = excluded.scope, keep = excluded.keep, batch = excluded.batch
     where (t.class, t.scope, t.keep, t.batch) is distinct from (excluded.class, excluded.scope, excluded.keep, excluded.batch);
  end loop;
end $$;

-- Why a rule cannot be, as an error; returns if it can.
create or replace function pgmill.check_retention(name text, class text, scope text, keep interval) returns void
language plpgsql immutable
as $$
declare
  c record;
begin
  if class is null then
    return;
  end if;
  select bool_and(x.orgs) as orgs, max(x.at_least) as at_least, count(*) as n into c from pgmill.cleanup_classes() x where x.class = check_retention.class;
  if c.n = 0 then
    raise exception using errcode = 'MI404', message = format('clean-up %s: no class %s; there are %s', quote_literal(name), quote_literal(class),
      (select string_agg(distinct x.class, ', ') from pgmill.cleanup_classes() x));
  elsif starts_with(scope, 'org:') and not c.orgs then
    raise exception using errcode = 'MI409', message = format('clean-up %s: an organization has no rows of class %s to clean', quote_literal(name), class);
  elsif keep < c.at_least then
    raise exception using errcode = 'MI409', message = format('clean-up %s: rows of class %s are kept for at least %s', quote_literal(name), class, c.at_least);
  end if;
end $$;

-- The scopes that a rule is for, one after the other: the first after a given one that
-- has rows of the class, or null. Index: one by scope on the class's last table.
create or replace function pgmill.next_scope(name text, after text) returns text
language plpgsql stable
set enable_seqscan = off
as $$
declare
  r record;
  found_scope text;
begin
  select t.class, t.scope into r from pgmill.retention t where t.name = next_scope.name;
  if r.scope is distinct from 'org:*' then
    return case when after = '' then r.scope end;
  end if;
  execute (select format('select x.scope as s from pgmill.%I x where x.scope > greatest($1, ''org'') and x.scope < ''orh'' order by 1 limit 1', c.tbl) -- whatever the collation
             from pgmill.cleanup_classes() c where c.class = r.class order by c.part desc limit 1)
     into found_scope using after;
  return found_scope;
end $$;

-- One batch of one clean-up in one scope, in the caller's transaction: answers how many
-- rows are deleted, or -1 if another cleaner is at it. Only as pgmill_cleanup, which
-- may delete nothing else (N81). What somebody has locked is left for the next.
create or replace function pgmill.clean(name text, of_scope text) returns int
language plpgsql volatile
set enable_seqscan = off
set lock_timeout = '500ms'
as $$
declare
  r record;
  c record;
  n int;
  deleted int := 0;
begin
  if current_user <> 'pgmill_cleanup' then
    raise exception using errcode = '42501', message = 'clean-ups run as pgmill_cleanup only';
  end if;
  select t.class, t.scope, t.keep, t.batch into r from pgmill.retention t where t.name = clean.name;
  if not found or of_scope is distinct from r.scope and not (r.scope = 'org:*' and starts_with(of_scope, 'org:')) then
    raise exception using errcode = 'MI409', message = format('clean-up %s has no rule for scope %s', quote_literal(name), quote_literal(of_scope));
  end if;
  perform pgmill.check_retention(name, r.class, of_scope, r.keep); -- the table may have been changed by hand
  if not pg_try_advisory_xact_lock(1886219629, hashtext(r.class || ' ' || of_scope)) then
    return -1;
  end if;
  for c in select x.tbl, x.old, x.sort, x.kept_if from pgmill.cleanup_classes() x where x.class = r.class order by x.part loop
    execute format('delete from pgmill.%I where ctid = any (array(select x.ctid %s for update of x skip locked))', c.tbl, pgmill.cleanup_source(c.tbl, c.old, c.sort, c.kept_if))
      using now() - r.keep, of_scope, r.batch - deleted;
    get diagnostics n = row_count;
    deleted := deleted + n;
    exit when deleted >= r.batch;
  end loop;
  return deleted;
end $$;
