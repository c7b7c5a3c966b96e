-- Positions. advance() gives every committed event its place in the one order,
-- once, for everybody; see platform/outbox for the argument.

-- What events of one subscription are kept in order by: the key, else the target.
create or replace function pgmill.order_key(scope text, key text, target text) returns text
language sql immutable parallel safe
as $$ select case when scope = 'install' then coalesce(key, target) else scope || ' ' || coalesce(key, target) end $$;

-- Has this event its position? A function, because a subplan over all partitions would
-- be set up by each advance, needed or not.
create or replace function pgmill.is_logged(id bigint) returns boolean
language plpgsql stable
as $$
begin
  return exists (select from pgmill.log l where l.event_id = is_logged.id);
end $$;

-- Gives positions to what is visible now and was not in the last step. Returns how
-- many, or -1 if another host is at it. Must be a transaction of its own: the lock
-- (statement 1) is older than the snapshot (statement 3) only under read committed.
-- A step over many transactions, or many events of one, is taken in pieces by id, towards
-- one snapshot, so that a host that dies in it or has no patience loses one piece.
-- Indexes: step_pkey backwards, event_xid; event_pkey for a step in pieces.
create or replace function pgmill.advance() returns bigint
language plpgsql volatile
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
declare
  many constant bigint := 20000;   -- transactions
  piece constant bigint := 100000; -- events
  old record;
  cur pg_snapshot;
  floor bigint;
  found_n bigint;
  n bigint;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'advance needs read committed, not %', current_setting('transaction_isolation');
  end if;
  if not pg_try_advisory_xact_lock(1886219628, 1) then
    return -1;
  end if;
  select k, base, last, after_id, cluster, target, upto into old from pgmill.step order by k desc limit 1;
  select pg_current_snapshot() into cur;

  if pgmill.cluster_id() <> old.cluster or pg_snapshot_xmax(cur) < pg_snapshot_xmax(old.base) then
    return pgmill.reposition(old.k, old.last, cur);
  end if;
  if old.target is not null then
    return pgmill.advance_piece(old.k, old.base, old.last, old.after_id, old.target, old.upto, piece);
  end if;
  found_n := piece + 1;
  if pg_snapshot_xmax(cur)::text::bigint - pg_snapshot_xmax(old.base)::text::bigint <= many then
    with e as materialized (
      select id, scope, key, target, type from pgmill.event
       where xid >= pg_snapshot_xmax(old.base) and xid < pg_snapshot_xmax(cur)
         and pg_visible_in_snapshot(xid, cur)
         and (id > old.after_id or not pgmill.is_logged(id))
      union all
      select id, scope, key, target, type from pgmill.event
       where xid = any(array(select x from pg_snapshot_xip(old.base) x where pg_visible_in_snapshot(x, cur)))
         and (id > old.after_id or not pgmill.is_logged(id))
      limit piece + 1
    ), ours as (
      insert into pgmill.log (pos, event_id, at, key_hash, target_hash, type)
      select old.last + row_number() over (order by e.id), e.id, statement_timestamp(),
             hashtext(pgmill.order_key(e.scope, e.key, e.target)),
             hashtext(pgmill.order_key(e.scope, null, e.target)), e.type
        from e where (select count(*) from e) <= piece
      returning 1
    )
    select (select count(*) from e), (select count(*) from ours) into found_n, n;
  end if;
  if found_n > piece then
    select min(e.id) - 1 into floor
      from (select id from pgmill.event where xid >= pg_snapshot_xmax(old.base)
            union all
            select id from pgmill.event where xid = any(array(select pg_snapshot_xip(old.base)))) e;
    if floor is null then
      return 0; -- others' transactions only: the step is not even written down
    end if;
    return pgmill.advance_piece(old.k, old.base, old.last, old.after_id, cur, floor, piece);
  end if;

  if n > 0 then
    insert into pgmill.step (k, base, last, after_id, cluster)
    values (old.k + 1, cur, old.last + n, old.after_id, old.cluster);
    if old.k % 50 = 0 then
      delete from pgmill.step where k between old.k - 300 and old.k - 101; -- below are the dead, whom an old snapshot keeps
    end if;
  end if;
  return n;
end $$;

-- One piece of a step from base to target: the next ids after upto. The step ends
-- when a piece is not full.
create or replace function pgmill.advance_piece(old_k bigint, base pg_snapshot, last bigint, after_id bigint, target pg_snapshot, upto bigint, piece bigint) returns bigint
language plpgsql volatile
set enable_seqscan = off
as $$
declare
  n bigint;
  done bigint;
begin
  insert into pgmill.log (pos, event_id, at, key_hash, target_hash, type)
  select advance_piece.last + row_number() over (order by e.id), e.id, statement_timestamp(),
         hashtext(pgmill.order_key(e.scope, e.key, e.target)),
         hashtext(pgmill.order_key(e.scope, null, e.target)), e.type
    from (select id, scope, key, v.target, type from pgmill.event v
           where id > advance_piece.upto and pg_visible_in_snapshot(xid, advance_piece.target) and not pg_visible_in_snapshot(xid, advance_piece.base)
             and (id > advance_piece.after_id or not pgmill.is_logged(id))
           order by id limit piece) e;
  get diagnostics n = row_count;
  if n = piece then
    select event_id into done from pgmill.log where pos = advance_piece.last + n;
  end if;
  insert into pgmill.step (k, base, last, after_id, cluster, target, upto)
  values (old_k + 1, case when done is null then advance_piece.target else advance_piece.base end, advance_piece.last + n, advance_piece.after_id,
          pgmill.cluster_id(), case when done is not null then advance_piece.target end, done);
  return n;
end $$;

-- The cluster's identity, read from the control file once a session: a session
-- does not outlive its cluster.
create or replace function pgmill.cluster_id() returns bigint
language plpgsql volatile
as $$
declare
  known text := current_setting('pgmill.cluster', true);
begin
  if coalesce(known, '') = '' then
    select system_identifier::text into known from pg_control_system();
    perform set_config('pgmill.cluster', known, false);
  end if;
  return known::bigint;
end $$;

-- After a restore into another cluster transaction ids mean nothing any more: log
-- what the log lacks, and from here on let older events in only by looking them up.
create or replace function pgmill.reposition(old_k bigint, old_last bigint, cur pg_snapshot) returns bigint
language plpgsql volatile
as $$
declare
  n bigint;
begin
  insert into pgmill.log (pos, event_id, at, key_hash, target_hash, type)
  select old_last + row_number() over (order by e.id), e.id, statement_timestamp(),
         hashtext(pgmill.order_key(e.scope, e.key, e.target)),
         hashtext(pgmill.order_key(e.scope, null, e.target)), e.type
    from pgmill.event e
   where not exists (select from pgmill.log l where l.event_id = e.id);
  get diagnostics n = row_count;
  insert into pgmill.step (k, base, last, after_id, cluster)
  select old_k + 1, cur, old_last + n, coalesce(max(id), 0), pgmill.cluster_id() from pgmill.event;
  insert into pgmill.audit (actor, action, subject, reason)
  values ('db:' || session_user, 'log.reposition', n || ' events', 'cluster_changed');
  return n;
end $$;

-- One look: advance, then what is new after the position seen: the head and which
-- types arrived (null: too many to say, or nothing is new). advanced is -1 if another
-- host is at it. hush_ms > 0 keeps emitters silent for so long. Commits without
-- waiting for the disk: whoever commits a cursor past these positions flushes them
-- too, and who has only seen them is stopped by shard_version.
create or replace function pgmill.look(seen bigint, hush_ms int, out advanced bigint, out head bigint, out types text[])
language plpgsql volatile
set enable_seqscan = off
set plan_cache_mode = force_generic_plan -- or what reads partitions is planned each time
as $$
begin
  perform set_config('synchronous_commit', 'off', true);
  if hush_ms > 0 then
    perform setval('pgmill.bell', -pgmill.epoch_ms() - hush_ms);
  elsif pg_sequence_last_value('pgmill.bell') between 2 and pg_sequence_last_value('pgmill.event_id') + 5000 then
    perform pgmill.arm(true);
  end if;
  advanced := pgmill.advance();
  head := pgmill.head();
  if head - seen between 1 and 10000 then
    types := array(select distinct l.type from pgmill.log l where l.pos > seen and l.pos <= look.head);
  end if;
end $$;

create or replace function pgmill.epoch_ms() returns bigint
language sql volatile
as $$ select (date_part('epoch', clock_timestamp()) * 1000)::bigint $$;

-- Emitters ring for the next 10,000 events, unless a host keeps them silent and is
-- not the caller (mine). Called at each poll of a host that hears LISTEN; look renews
-- it. When all hosts are gone it runs out by itself.
create or replace function pgmill.arm(mine boolean) returns void
language plpgsql volatile
as $$
declare
  bell bigint := pg_sequence_last_value('pgmill.bell');
begin
  if mine or bell > 0 or -bell < pgmill.epoch_ms() then
    perform setval('pgmill.bell', coalesce(pg_sequence_last_value('pgmill.event_id'), 0) + 10000);
  end if;
end $$;

-- Not language sql, which would be parsed and planned at each call.
create or replace function pgmill.head() returns bigint
language plpgsql stable
as $$
begin
  return (select last from pgmill.step order by k desc limit 1);
end $$;

-- The first position at or after a time; after the head if there is none.
create or replace function pgmill.pos_at(at timestamptz) returns bigint
language plpgsql stable
as $$
declare
  lo bigint := pgmill.archived() + 1;
  hi bigint := pgmill.head() + 1;
  mid bigint;
begin
  while lo < hi loop -- log.at never falls as pos rises
    mid := (lo + hi) / 2;
    if (select l.at from pgmill.log l where l.pos >= mid order by l.pos limit 1) >= pos_at.at then
      hi := mid;
    else
      lo := mid + 1;
    end if;
  end loop;
  return lo;
end $$;

-- Positions in one partition of the log.
create or replace function pgmill.log_width() returns bigint
language sql immutable
as $$ select 5000000::bigint $$;

-- Partitions of the log, three ahead of the head. The runtime role has no DDL,
-- so this runs as its owner. A range whose rows already lie in the default
-- partition cannot be attached; it stays there and mill.health says so.
create or replace function pgmill.make_partitions() returns int
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '500ms'
as $$
declare
  width constant bigint := pgmill.log_width();
  made int := 0;
  t record;
  at_no bigint;
  part text;
begin
  for t in
    select 'log' as name, 'pos' as col, (select last from pgmill.step order by k desc limit 1) as now
  loop
    for at_no in t.now / width .. t.now / width + 3 loop
      part := t.name || '_' || at_no;
      continue when to_regclass('pgmill.' || part) is not null;
      begin
        execute format('create table pgmill.%I (like pgmill.%I including all, check (%I >= %s and %I < %s))',
                       part, t.name, t.col, at_no * width, t.col, (at_no + 1) * width);
        execute format('alter table pgmill.%I attach partition pgmill.%I for values from (%s) to (%s)',
                       t.name, part, at_no * width, (at_no + 1) * width);
        made := made + 1;
      exception
        when lock_not_available or check_violation or duplicate_table then null; -- next time
      end;
    end loop;
  end loop;
  return made;
end $$;
