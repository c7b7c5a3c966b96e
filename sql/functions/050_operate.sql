-- What an operator does to a subscription. Each leaves an audit row with the actor
-- db:<session_user> and answers what it did in a few words. Errors: MI404 unknown,
-- MI409 the state does not allow it.

create or replace function pgmill.note_audit(action text, subject text, reason text) returns void
language sql volatile
as $$
  insert into pgmill.audit (actor, action, subject, reason)
  values ('db:' || session_user, note_audit.action, note_audit.subject, left(note_audit.reason, 200))
$$;

-- Tells holders and idle hosts to look.
create or replace function pgmill.touch(name text) returns void
language plpgsql volatile
as $$
begin
  update pgmill.shard set version = version + 1 where subscription = name;
  if not found then
    raise exception using errcode = 'MI404', message = format('no subscription %s; see mill.subscriptions', quote_literal(name));
  end if;
  perform pgmill.wake(name); -- it may have work now
  if pg_notification_queue_usage() < 0.5 then
    perform pg_notify('pgmill', '');
  end if;
end $$;

create or replace function mill.pause_subscription(name text, reason text default null) returns text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
begin
  perform pgmill.touch(name);
  update pgmill.subscription s set paused_at = coalesce(s.paused_at, now()), pause_reason = left(pause_subscription.reason, 200) where s.name = pause_subscription.name;
  perform pgmill.note_audit('subscription.pause', name, reason);
  return 'paused';
end $$;

-- Ends a pause, and gives a held or retrying shard a fresh set of attempts now.
create or replace function mill.resume_subscription(name text, reason text default null) returns text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
begin
  perform pgmill.touch(name);
  update pgmill.subscription s set paused_at = null, pause_reason = null where s.name = resume_subscription.name;
  update pgmill.shard s set held_at = null, attempts = 0, next_retry_at = null where s.subscription = resume_subscription.name;
  perform pgmill.note_audit('subscription.resume', name, reason);
  return 'resumed';
end $$;

-- The failing event of a shard; MI409 if nothing fails.
create or replace function pgmill.failing(name text, shard int) returns pgmill.shard
language plpgsql volatile
as $$
declare
  s pgmill.shard;
begin
  select x.* into s from pgmill.shard x where x.subscription = name and x.shard = failing.shard for update;
  if not found then
    raise exception using errcode = 'MI404', message = format('no shard %s of subscription %s', shard, quote_literal(name));
  elsif s.failing_pos is null then
    raise exception using errcode = 'MI409', message = format('shard %s of %s has no failing event', shard, quote_literal(name));
  end if;
  return s;
end $$;

-- Stops retrying the failing event until resume, park or drop.
create or replace function mill.hold_subscription(name text, shard int default 0, reason text default null) returns text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
  s pgmill.shard := pgmill.failing(name, shard);
begin
  perform pgmill.touch(name);
  update pgmill.shard x set held_at = now(), next_retry_at = null where x.subscription = name and x.shard = hold_subscription.shard;
  perform pgmill.note_audit('subscription.hold', name || '/' || shard || '@' || s.failing_pos, reason);
  return 'held';
end $$;

-- Moves a shard's cursor past its failing event; park keeps the event, drop does not.
create or replace function pgmill.pass(s pgmill.shard) returns void
language plpgsql volatile
as $$
begin
  insert into pgmill.cursor (subscription, shard, n, pos)
  select s.subscription, s.shard, c.n + 1, greatest(c.pos, s.failing_pos)
    from pgmill.cursor c where c.subscription = s.subscription and c.shard = s.shard order by c.n desc limit 1;
  update pgmill.shard x
     set failing_pos = null, attempts = 0, reason = null, failed_at = null, next_retry_at = null, held_at = null, noted_pos = null
   where x.subscription = s.subscription and x.shard = s.shard;
  perform pgmill.touch(s.subscription);
end $$;

create or replace function mill.park_subscription(name text, shard int default 0, reason text default null) returns text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
  s pgmill.shard := pgmill.failing(name, shard);
  of_key text;
begin
  select pgmill.order_key(e.scope, case when f.order_by = 'key' then e.key end, e.target) into of_key
    from pgmill.log l join pgmill.event e on e.id = l.event_id join pgmill.subscription f on f.name = park_subscription.name
   where l.pos = s.failing_pos;
  if not pgmill.park_event(name, shard, s.failing_pos, of_key, s.attempts, coalesce(s.reason, 'handler_error')) then
    raise exception using errcode = 'MI409', message = 'a thousand keys of this shard are parked already; unpark or drop some first';
  end if;
  perform pgmill.pass(s);
  perform pgmill.note_audit('subscription.park', name || '/' || shard || '@' || s.failing_pos, reason);
  return 'parked';
end $$;

-- Drops the failing event of a shard (pos null), or one parked event: it will not
-- be handled. Later events of a parked key are then replayed.
create or replace function mill.drop_event(name text, shard int default 0, pos bigint default null, reason text default null) returns text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
  s pgmill.shard;
  of_key text;
begin
  if pos is null then
    s := pgmill.failing(name, shard);
    perform pgmill.pass(s);
    perform pgmill.note_audit('event.drop', name || '/' || shard || '@' || s.failing_pos, reason);
    return 'dropped';
  end if;
  delete from pgmill.parked_event p where p.subscription = name and p.shard = drop_event.shard and p.pos = drop_event.pos returning p.key into of_key;
  if not found then
    raise exception using errcode = 'MI404', message = format('no event at %s is parked in shard %s of %s; see mill.parked_events', pos, shard, quote_literal(name));
  end if;
  update pgmill.parked_key k set replay_pos = drop_event.pos where k.subscription = name and k.shard = drop_event.shard and k.key = of_key;
  perform pgmill.touch(name);
  perform pgmill.note_audit('event.drop', name || '/' || shard || '@' || pos, reason);
  return 'dropped';
end $$;

-- Replays a parked key from its parked event until it meets the cursor. key null:
-- all parked keys. Answers how many.
create or replace function mill.unpark(name text, key text default null, reason text default null) returns text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
  n int;
begin
  perform pgmill.touch(name);
  update pgmill.parked_key k set replay_pos = k.from_pos - 1
   where k.subscription = name and (unpark.key is null or k.key = unpark.key) and k.replay_pos is null;
  get diagnostics n = row_count;
  if n = 0 and unpark.key is not null and not exists (select from pgmill.parked_key k where k.subscription = name and k.key = unpark.key) then
    raise exception using errcode = 'MI404', message = 'that key is not parked; see mill.parked_events';
  end if;
  perform pgmill.note_audit('event.unpark', name || coalesce(':' || key, ''), reason);
  return n || ' keys';
end $$;

-- Moves all cursors of a subscription: to 'now' (skip what is waiting), 'zero'
-- (everything again), a position (the next event is the one there) or a time (the
-- first one positioned at or after it). Back only for those declared Replayable.
create or replace function mill.move_subscription(name text, destination text, reason text default null) returns text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
  f record;
  archived bigint;
  to_pos bigint;
begin
  select s.replayable into f from pgmill.subscription s where s.name = move_subscription.name;
  if not found then
    raise exception using errcode = 'MI404', message = format('no subscription %s; see mill.subscriptions', quote_literal(name));
  end if;
  archived := pgmill.hold_archive();
  to_pos := pgmill.position_of(destination);
  if not f.replayable and to_pos < (
       select max(c.pos) from pgmill.shard s
        cross join lateral (select x.pos from pgmill.cursor x where x.subscription = s.subscription and x.shard = s.shard order by x.n desc limit 1) c
        where s.subscription = name) then
    raise exception using errcode = 'MI409', message = 'this subscription is not declared Replayable: its effects would happen twice';
  elsif to_pos < archived then
    raise exception using errcode = 'MI409', message = format('events up to position %s are archived: move it to zero, the first that is kept, or further', archived);
  end if;
  perform pgmill.touch(name);
  loop -- a holder may take the next n while we do
    begin
      insert into pgmill.cursor (subscription, shard, n, pos)
      select s.subscription, s.shard, (select max(c.n) + 1 from pgmill.cursor c where c.subscription = s.subscription and c.shard = s.shard), to_pos
        from pgmill.shard s where s.subscription = name;
      exit;
    exception
      when unique_violation then null;
    end;
  end loop;
  update pgmill.shard x
     set failing_pos = null, attempts = 0, reason = null, failed_at = null, next_retry_at = null, held_at = null, noted_pos = null
   where x.subscription = name;
  delete from pgmill.parked_event p where p.subscription = name;
  delete from pgmill.parked_key p where p.subscription = name;
  perform pgmill.note_audit('subscription.move', name || '@' || to_pos, reason);
  return 'moved to ' || to_pos;
end $$;

-- Moves all cursors back, so that what has been handled from there on is handled again;
-- refuses what would skip an event instead: one that waits, or that is parked.
create or replace function mill.replay_subscription(name text, destination text, reason text default null) returns text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
  to_pos constant bigint := pgmill.position_of(destination);
  furthest bigint;
  waiting bigint; -- the first that is not handled
begin
  select max(c.pos), least(min(c.pos), (select min(coalesce(k.replay_pos, k.from_pos - 1)) from pgmill.parked_key k where k.subscription = name)) + 1
    into furthest, waiting
    from pgmill.shard s
   cross join lateral (select x.pos from pgmill.cursor x where x.subscription = s.subscription and x.shard = s.shard order by x.n desc limit 1) c
   where s.subscription = name;
  if to_pos >= furthest then
    raise exception using errcode = 'MI409', message = 'nothing from there on has been handled yet, so there is nothing to replay; to skip what waits: host subscription move';
  elsif to_pos >= waiting then
    raise exception using errcode = 'MI409',
      message = format('what waits or is parked from position %s on would be skipped: replay from there or before, or skip it: host subscription move', waiting);
  end if;
  return mill.move_subscription(name, destination, reason);
end $$;

-- The position after which a subscription that is moved there goes on. MI001 for
-- what is neither a word we know, nor a position, nor a time.
create or replace function pgmill.position_of(destination text) returns bigint
language plpgsql stable
as $$
declare
  head bigint := pgmill.head();
begin
  if destination = 'now' then
    return head;
  elsif destination in ('zero', '0') then
    return pgmill.archived();
  elsif destination ~ '^[0-9]{1,18}$' then
    return least(destination::bigint - 1, head);
  elsif destination is null then
    raise null_value_not_allowed;
  end if;
  return pgmill.pos_at(destination::timestamptz) - 1;
exception
  when invalid_datetime_format or datetime_field_overflow or invalid_text_representation or invalid_time_zone_displacement_value or null_value_not_allowed then
    raise exception using errcode = 'MI001', message = 'a subscription moves to now, to zero, to a position, or to a time like 2026-11-29T18:00:00Z';
end $$;
