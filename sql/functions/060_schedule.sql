-- Schedules. A row's life: declared with its first fire time; when that has come,
-- a host reckons in Go which fire times are to be emitted and which one follows, and
-- fire_schedules writes events, next_at and the wake of the subscription in one
-- transaction, fenced by version; fired_to never falls. Locks are taken in this
-- order: schedule (by name), subscription, cursor.

-- Is every tick of a schedule done? That is: the last emitted one has its position
-- and no cursor is before it, or it is archived. Plain enough to be inlined; mill.schedules, whose
-- readers may not run it, has a copy.
create or replace function pgmill.ticks_done(name text, last_event bigint) returns boolean
language sql stable
as $$
  select last_event is null
      or not exists (select from pgmill.event e where e.id = last_event)
      or coalesce((select l.pos from pgmill.log l where l.event_id = last_event limit 1)
                  <= (select min(c.pos) from pgmill.subscription f
                       cross join generate_series(0, f.shards - 1) no
                       cross join lateral (select x.pos from pgmill.cursor x where x.subscription = f.name and x.shard = no order by x.n desc limit 1) c
                       where f.name = ticks_done.name), false)
$$;

-- Ends a subscription's dormancy in the transaction that emits to it. What has its
-- position by now is not for it, so its cursors move to the head; where a holder
-- settles at the same time, its cursor is there already.
create or replace function pgmill.wake(name text) returns void
language plpgsql volatile
set enable_seqscan = off
as $$
declare
  upto bigint;
begin
  update pgmill.subscription f set dormant = false where f.name = wake.name and f.dormant;
  if not found then
    return;
  end if;
  upto := pgmill.head();
  insert into pgmill.cursor (subscription, shard, n, pos)
  select s.subscription, s.shard, c.n + 1, upto
    from pgmill.shard s
   cross join lateral (select x.n, x.pos from pgmill.cursor x where x.subscription = s.subscription and x.shard = s.shard order by x.n desc limit 1) c
   where s.subscription = wake.name and c.pos < upto
  on conflict do nothing;
  delete from pgmill.cursor c using pgmill.shard s
   where s.subscription = wake.name and c.subscription = s.subscription and c.shard = s.shard
     and c.n < (select max(m.n) - 20 from pgmill.cursor m where m.subscription = s.subscription and m.shard = s.shard);
end $$;

-- Makes the subscriptions of schedules dormant whose ticks are all done, at most 500
-- a call. Called at each poll; rows that somebody is changing are left for the next.
create or replace function pgmill.doze() returns int
language plpgsql volatile
set enable_seqscan = off
set jit = off
as $$
declare
  s record;
  n int := 0;
begin
  for s in
    with awake as materialized ( -- a fence: else ticks_done is asked of every schedule
      select f.name, d.version, d.last_event
        from pgmill.subscription f
        join pgmill.schedule d on d.name = f.name
        join pgmill.function u on u.name = f.name and u.kind in ('schedule', 'cleanup') -- it may have been one before
       where not f.dormant
    )
    select a.name, a.version from awake a where pgmill.ticks_done(a.name, a.last_event) limit 500
  loop
    perform 1 from pgmill.schedule d where d.name = s.name and d.version = s.version for update skip locked;
    continue when not found;
    perform 1 from pgmill.subscription f where f.name = s.name for update skip locked;
    continue when not found;
    update pgmill.subscription f set dormant = true -- looked at again, now that nobody else can change it
      from pgmill.schedule d
      join pgmill.function u on u.name = d.name and u.kind in ('schedule', 'cleanup')
     where f.name = s.name and d.name = s.name and pgmill.ticks_done(d.name, d.last_event)
       and not exists (select from pgmill.shard x where x.subscription = f.name and (x.failing_pos is not null or x.suspect_left > 0 or x.noted_pos is not null))
       and not exists (select from pgmill.parked_key k where k.subscription = f.name and k.replay_pos is not null);
    n := n + found::int;
  end loop;
  return n;
end $$;

-- May this host emit the ticks of this schedule? It has the function, and the
-- function is a schedule.
create or replace function pgmill.is_mine(me text, name text) returns boolean
language sql stable
as $$
  select exists (select from pgmill.instance_function i join pgmill.function d on d.name = i.function
                  where i.function = is_mine.name and i.instance = me and d.kind in ('schedule', 'cleanup'))
$$;

-- For the poll: when a schedule falls due, in milliseconds; 0: one of the caller's is
-- due now. Null: none will. Index: schedule_due.
create or replace function pgmill.schedule_ms(me text) returns bigint
language plpgsql volatile
set enable_seqscan = off
as $$
begin
  if exists (select from pgmill.schedule d where d.paused_at is null and d.next_at <= now() and pgmill.is_mine(me, d.name)) then
    return 0;
  end if;
  return (select greatest(1, ceil(extract(epoch from d.next_at - clock_timestamp()) * 1000)::bigint)
            from pgmill.schedule d where d.paused_at is null and d.next_at > now() order by d.next_at limit 1);
end $$;

-- The caller's due schedules, the longest due first.
create or replace function pgmill.due_schedules(me text, take int)
returns table (name text, version bigint, cron text, zone text, missed text, max_missed int, next_at timestamptz, since timestamptz, now timestamptz)
language plpgsql stable
set enable_seqscan = off
as $$
begin
  return query
  select d.name, d.version, d.cron, d.zone, d.missed, d.max_missed, d.next_at, coalesce(d.since, 'epoch'), now()
    from pgmill.schedule d
   where d.paused_at is null and d.next_at <= now() and pgmill.is_mine(me, d.name)
   order by d.next_at limit take;
end $$;

-- One tick as an event. data and key carry the fire time; the key is the tick's own,
-- so that a parked one holds up no other. Among several shards they take turns.
create or replace function pgmill.emit_tick(name text, fire_at timestamptz, missed int, manual boolean, nth bigint) returns bigint
language plpgsql volatile
as $$
declare
  stamp text := to_char(fire_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"');
  of_key text := replace(stamp, '.000000Z', 'Z') || case when manual then '!' || nth else '' end;
  n int := (select f.shards from pgmill.subscription f where f.name = emit_tick.name);
  new_id bigint;
begin
  if n > 1 then
    select of_key || '#' || k into of_key from generate_series(0, 100 * n) k
     where (hashtext(of_key || '#' || k) & 2147483647) % n = nth % n limit 1;
  end if;
  insert into pgmill.event (type, target, key, data)
  values ('schedule.' || name, name, of_key, jsonb_strip_nulls(jsonb_build_object('at', stamp, 'missed', nullif(missed, 0), 'manual', nullif(manual, false))))
  returning id into new_id;
  perform pgmill.wake(name);
  return new_id;
end $$;

create or replace function pgmill.ring_if_armed() returns void
language plpgsql volatile
as $$
begin
  if pg_sequence_last_value('pgmill.event_id') < pg_sequence_last_value('pgmill.bell'::regclass) then
    perform pgmill.ring();
  end if;
end $$;

-- Emits due ticks and moves schedules on, each if its version is still the plan's:
-- {name, version, next, fires, last, missed, reason}, times in seconds of the epoch.
-- next null: it does not fire again. last is the newest fire time that came, missed
-- how many were left out. A row that another host has locked is being fired by it.
create or replace function pgmill.fire_schedules(plans jsonb, out moved int, out ticks int)
language plpgsql volatile
set enable_seqscan = off
as $$
declare
  p record;
  s record;
  fire bigint;
  at timestamptz;
  busy boolean;
  last_left text;
  last_at timestamptz;
begin
  moved := 0;
  ticks := 0;
  for p in
    select x.name, x.version, x.next, x.fires, x.last, x.missed, x.reason
      from jsonb_to_recordset(plans) as x(name text, version bigint, next bigint, fires bigint[], last bigint, missed int, reason text)
     order by x.name
  loop
    select d.overlap, d.last_event, d.last_at, d.last_left, d.fired, d.fired_to into s
      from pgmill.schedule d where d.name = p.name and d.version = p.version and d.paused_at is null
       for update skip locked;
    continue when not found;
    moved := moved + 1;
    busy := s.overlap = 'skip' and cardinality(p.fires) > 0 and not pgmill.ticks_done(p.name, s.last_event);
    if p.last is not null then
      s.last_at := to_timestamp(p.last);
      s.last_left := 'missed';
    end if;
    foreach fire in array coalesce(p.fires, '{}') loop
      at := to_timestamp(fire);
      continue when at <= s.fired_to; -- the wall
      s.fired_to := at;
      s.last_at := at;
      s.last_left := 'overlap';
      continue when busy;
      s.last_event := pgmill.emit_tick(p.name, at, p.missed, false, s.fired);
      s.fired := s.fired + 1;
      s.last_left := null;
      p.missed := 0;
      busy := s.overlap = 'skip';
      ticks := ticks + 1;
    end loop;
    update pgmill.schedule d
       set version = d.version + 1, next_at = to_timestamp(p.next), reason = p.reason, fired = s.fired,
           fired_to = greatest(s.fired_to, to_timestamp(p.last)),
           last_at = s.last_at, last_event = s.last_event, last_left = s.last_left
     where d.name = p.name;
  end loop;
  if ticks > 0 then
    perform pgmill.ring_if_armed();
  end if;
end $$;

-- Puts declarations in place: {name, version, cron, zone, missed, max_missed, overlap,
-- next, reason}; version null: the schedule is new. One whose row has changed since
-- it was read is left out, to be read again: answers how many were taken. A change
-- of when it fires leaves an audit row.
create or replace function pgmill.declare_schedules(plans jsonb) returns int
language plpgsql volatile
as $$
declare
  p record;
  was record;
  n int := 0;
begin
  for p in
    select x.name, x.version, x.cron, x.zone, x.missed, x.max_missed, x.overlap, x.next, x.reason
      from jsonb_to_recordset(plans) as x(name text, version bigint, cron text, zone text, missed text, max_missed int, overlap text, next bigint, reason text)
     order by x.name
  loop
    if p.version is null then
      insert into pgmill.schedule (name, cron, zone, missed, max_missed, overlap, next_at, reason)
      values (p.name, p.cron, p.zone, p.missed, p.max_missed, p.overlap, to_timestamp(p.next), p.reason)
      on conflict (name) do nothing;
      continue when not found;
      update pgmill.subscription f set dormant = true where f.name = p.name; -- nothing was emitted to it yet
    else
      select d.cron, d.zone into was from pgmill.schedule d where d.name = p.name and d.version = p.version for update;
      continue when not found;
      update pgmill.schedule d
         set version = d.version + 1, cron = p.cron, zone = p.zone, missed = p.missed, max_missed = p.max_missed, overlap = p.overlap,
             next_at = to_timestamp(p.next), reason = p.reason
       where d.name = p.name;
      if (was.cron, was.zone) is distinct from (p.cron, p.zone) then
        perform pgmill.note_audit('schedule.change', p.name, trim(was.cron || ' ' || was.zone) || ' became ' || trim(p.cron || ' ' || p.zone));
      end if;
    end if;
    n := n + 1;
  end loop;
  return n;
end $$;

-- What an operator does to a schedule; see 050_operate.sql.

create or replace function pgmill.unknown_schedule(name text) returns void
language plpgsql immutable
as $$
begin
  raise exception using errcode = 'MI404', message = format('no schedule %s; see mill.schedules', quote_literal(name));
end $$;

-- Ticks emitted before are still handled; pause_subscription stops those.
create or replace function mill.pause_schedule(name text, reason text default null) returns text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
begin
  update pgmill.schedule d set paused_at = coalesce(d.paused_at, now()), version = d.version + 1 where d.name = pause_schedule.name;
  if not found then
    perform pgmill.unknown_schedule(name);
  end if;
  perform pgmill.note_audit('schedule.pause', name, reason);
  return 'paused';
end $$;

-- Fire times that passed during the pause do not fire.
create or replace function mill.resume_schedule(name text, reason text default null) returns text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
begin
  update pgmill.schedule d
     set since = case when d.paused_at is null then d.since else clock_timestamp() end, paused_at = null, version = d.version + 1
   where d.name = resume_schedule.name;
  if not found then
    perform pgmill.unknown_schedule(name);
  end if;
  perform pgmill.note_audit('schedule.resume', name, reason);
  return 'resumed';
end $$;

-- A tick now, also of a paused schedule; its fire times stay as they are.
create or replace function mill.trigger_schedule(name text, reason text default null) returns text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
  s record;
  at constant timestamptz := clock_timestamp();
  id bigint;
begin
  select d.fired into s from pgmill.schedule d where d.name = trigger_schedule.name for update;
  if not found then
    perform pgmill.unknown_schedule(name);
  end if;
  id := pgmill.emit_tick(name, at, 0, true, s.fired);
  update pgmill.schedule d
     set version = d.version + 1, fired = d.fired + 1, last_event = id, last_at = at, last_left = null
   where d.name = trigger_schedule.name;
  perform pgmill.ring_if_armed();
  perform pgmill.note_audit('schedule.trigger', name, reason);
  return 'triggered, event ' || id;
end $$;
