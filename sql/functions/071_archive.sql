-- The archive: events before a position leave the database, and never come back. What
-- any reader still needs is refused. Locks are taken in this order: the row of
-- pgmill.archive, subscription, cursor.
--
-- The order in which things go keeps every reader right: archive.upto rises first, so
-- that no cursor is set below it any more; with it, in the same transaction, the events
-- go; log rows go with them or later, with their whole partition. An event without its
-- log row is never seen, or advance() after a restore would position it again.

-- Positions up to this one are archived. A cursor before it is expired.
create or replace function pgmill.archived() returns bigint
language plpgsql stable
as $$
begin
  return (select a.upto from pgmill.archive a);
end $$;

-- The same, and stays so until the end of the transaction: for who sets a cursor back,
-- whose rights do not include the archive's row.
create or replace function pgmill.hold_archive() returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return (select a.upto from pgmill.archive a for share);
end $$;

-- What needs positions from one on: cursors, parked keys and events, replays, changes of
-- shards. All of them, always, so that a list that is cut short is never gone by. One
-- statement, one snapshot: a key is parked and its cursor moved on in one transaction.
-- A dormant subscription needs none: whatever wakes it moves it to the head.
create or replace function pgmill.archive_needs() returns table (pos bigint, what text)
language sql stable
as $$
  select c.pos + 1, format('the cursor of %s/%s%s', s.subscription, s.shard,
           case when d.reason is not null then ', which does not run' when f.paused_at is not null then ', which is paused' when s.held_at is not null then ', which is held' else '' end)
    from pgmill.subscription f
    join pgmill.function d on d.name = f.name
    join pgmill.shard s on s.subscription = f.name
   cross join lateral (select x.pos from pgmill.cursor x where x.subscription = s.subscription and x.shard = s.shard order by x.n desc limit 1) c
   where not f.dormant
  union all
  select s.noted_pos, format('the event noted by %s/%s', s.subscription, s.shard) from pgmill.shard s where s.noted_pos is not null
  union all
  select s.failing_pos, format('the failing event of %s/%s', s.subscription, s.shard) from pgmill.shard s where s.failing_pos is not null
  union all
  select least(k.from_pos, k.replay_pos + 1), format('%s of %s/%s', case when k.replay_pos is null then 'a parked key' else 'the replay of a parked key' end, k.subscription, k.shard)
    from pgmill.parked_key k
  union all
  select p.pos, format('a parked event of %s/%s', p.subscription, p.shard) from pgmill.parked_event p
  union all
  select r.stop_at + 1, format('the reshard of %s', r.subscription) from pgmill.reshard r
$$;

-- The last position before a position ("8000000"), a time, or an age ("90d").
create or replace function pgmill.archive_target(before text) returns bigint
language plpgsql stable
as $$
declare
  head bigint := pgmill.head();
begin
  if before ~ '^[0-9]{1,18}$' then
    return least(before::bigint - 1, head);
  elsif before ~ '^([0-9]+(w|d|h|m|s))+$' then
    return pgmill.pos_at(now() - before::interval) - 1;
  elsif before is null then
    raise null_value_not_allowed;
  end if;
  return pgmill.pos_at(before::timestamptz) - 1;
exception
  when invalid_datetime_format or datetime_field_overflow or interval_field_overflow or invalid_text_representation or invalid_time_zone_displacement_value or null_value_not_allowed then
    raise exception using errcode = 'MI001', message = 'events are archived before a position, a time like 2026-11-29T18:00:00Z, or an age like 90d';
end $$;

-- What an archive before something would take, and how many readers still need how much
-- of it: names of the first ten. nothing is taken unless needed is 0.
create or replace function pgmill.archive_plan(before text, out archived bigint, out upto bigint, out head bigint, out first_at timestamptz, out last_at timestamptz, out needed bigint, out needed_from bigint, out needed_by text[])
language plpgsql stable
as $$
begin
  archived := pgmill.archived();
  head := pgmill.head();
  upto := greatest(archived, pgmill.archive_target(before));
  first_at := (select l.at from pgmill.log l where l.pos > archived order by l.pos limit 1);
  last_at := (select l.at from pgmill.log l where l.pos <= archive_plan.upto and l.pos > archived order by l.pos desc limit 1);
  select count(*), min(n.pos), coalesce((array_agg(format('%s, from position %s', n.what, n.pos) order by n.pos, n.what))[1:10], '{}')
    into needed, needed_from, needed_by
    from pgmill.archive_needs() n where n.pos <= archive_plan.upto;
end $$;

-- Refuses everybody but the owner of the tables.
create or replace function pgmill.check_archiver() returns void
language plpgsql stable
as $$
begin
  if not (select pg_has_role(c.relowner, 'usage') from pg_class c where c.oid = 'pgmill.event'::regclass) then
    raise exception using errcode = '42501',
      message = format('archiving events is for the owner of the tables: connect as %I', (select pg_get_userbyid(c.relowner) from pg_class c where c.oid = 'pgmill.event'::regclass));
  end if;
end $$;

-- Refuses a target that a reader needs, and everybody but the owner of the tables.
create or replace function pgmill.check_archive(target bigint) returns void
language plpgsql volatile
as $$
declare
  holder record;
begin
  perform pgmill.check_archiver();
  select n.pos, n.what, count(*) over () as others into holder from pgmill.archive_needs() n where n.pos <= target order by n.pos, n.what limit 1;
  if found then
    raise exception using errcode = 'MI409',
      message = format('%s needs events from position %s on, and %s more readers need some up to %s: archive --before %s at the most, or have them go on',
        holder.what, holder.pos, holder.others - 1, target, holder.pos);
  end if;
end $$;

-- Says that events up to target are to go, with an audit row, if nobody needs them.
-- Whoever is waking a subscription is waited for: its cursor is at a head of before.
create or replace function pgmill.begin_archive(target bigint, reason text) returns void
language plpgsql volatile
set enable_seqscan = off
set lock_timeout = '1s'
as $$
declare
  had bigint;
begin
  perform pgmill.check_archiver();
  select a.upto into had from pgmill.archive a for update;
  perform from pgmill.subscription f where f.dormant for share;
  perform pgmill.check_archive(target);
  perform pgmill.note_audit('events.archive', format('positions %s to %s', had + 1, target), reason);
end $$;

-- Archives the next positions up to target, at most take of them and of one partition.
-- Looks again who needs them. Log rows whose partition goes as a whole are left to
-- drop_archived. Answers up to where events are archived.
create or replace function pgmill.archive_batch(target bigint, take int) returns bigint
language plpgsql volatile
set enable_seqscan = off
set lock_timeout = '1s'
as $$
declare
  width constant bigint := pgmill.log_width();
  had bigint;
  goal bigint;
  whole boolean;
begin
  select a.upto into had from pgmill.archive a for update; -- a statement of its own: what follows sees who was faster
  perform pgmill.check_archive(target);
  goal := least(target, had + take, (had + 1) / width * width + width - 1);
  if goal <= had then
    return had;
  end if;
  update pgmill.archive a set upto = goal, at = now();
  delete from pgmill.event e where e.id = any (array(select l.event_id from pgmill.log l where l.pos > had and l.pos <= goal));
  whole := goal / width * width + width - 1 <= target and to_regclass('pgmill.log_' || goal / width) is not null;
  if not whole then
    delete from pgmill.log l where l.pos > had and l.pos <= goal;
  end if;
  return goal;
end $$;

-- Drops the log's partitions whose last position is archived. Each drop waits only for
-- a moment, because emitting hosts wait behind it; one that somebody reads is left, to be
-- tried again. (Detaching concurrently is not to be had beside a default partition.)
create or replace function pgmill.drop_archived(out dropped int, out remaining int)
language plpgsql volatile
set lock_timeout = '100ms'
as $$
declare
  upto constant bigint := pgmill.archived();
  part record;
begin
  dropped := 0;
  remaining := 0;
  for part in
    select c.relname as name from pg_inherits i join pg_class c on c.oid = i.inhrelid
     where i.inhparent = 'pgmill.log'::regclass and c.relname ~ '^log_[0-9]+$'
       and (substr(c.relname, 5)::bigint + 1) * pgmill.log_width() - 1 <= upto
     order by substr(c.relname, 5)::bigint
  loop
    begin
      execute format('drop table pgmill.%I', part.name);
      dropped := dropped + 1;
    exception
      when lock_not_available then remaining := remaining + 1;
    end;
    exit when dropped > 0; -- each lock on the log ends with its transaction
  end loop;
end $$;
