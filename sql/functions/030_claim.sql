-- Claims: River rows derived from what is true, and taken back from who is gone.

create or replace function pgmill.is_live(last_seen timestamptz, ttl interval, deregistered_at timestamptz) returns boolean
language sql stable parallel safe
as $$ select deregistered_at is null and now() - last_seen < ttl $$;

create or replace function pgmill.claim_key(subscription text, shard int) returns bytea
language sql immutable parallel safe
as $$ select convert_to('subscription:' || subscription || ':' || shard, 'UTF8') $$;

-- Does this shard of a subscription want this log row?
create or replace function pgmill.wants(likes text[], shards int, shard int, by_key boolean, type text, key_hash int, target_hash int) returns boolean
language sql immutable parallel safe
as $$
  select type like any (likes)
     and (shards = 1 or (case when by_key then key_hash else target_hash end & 2147483647) % shards = shard)
$$;

-- Inserts the claims that truth says are missing; idempotent, River's unique index
-- is the arbiter between hosts. A shard with nothing for it in the next positions
-- is moved past them without a claim. Runs in a statement of its own after an
-- advance or a settle has committed, and at each poll; names limits it.
create or replace function pgmill.derive_claims(names text[] default null, out claims int, out moved int)
language plpgsql volatile
set enable_seqscan = off
set jit = off
as $$
declare
  look_ahead constant int := 5000;
  head bigint := pgmill.head();
  archived bigint := pgmill.archived();
begin
  with free as materialized (
    select s.subscription, s.shard, f.likes, f.shards, f.order_by = 'key' as by_key, c.n, c.pos, least(head, r.stop_at) as upto,
           s.failing_pos is not null or s.suspect_left > 0
             or exists (select from pgmill.parked_key k where k.subscription = s.subscription and k.shard = s.shard and k.replay_pos is not null)
             or head - c.pos > look_ahead as sure
      from pgmill.subscription f
      join pgmill.function d on d.name = f.name and d.reason is null
      join pgmill.shard s on s.subscription = f.name and s.shard < f.shards
     cross join lateral (select n, pos from pgmill.cursor c where c.subscription = s.subscription and c.shard = s.shard order by c.n desc limit 1) c
      left join pgmill.reshard r on r.subscription = f.name
     where (names is null or f.name = any (names))
       and not f.dormant
       and f.paused_at is null
       and (s.held_at is null or s.next_retry_at is not null)
       and (s.next_retry_at is null or s.next_retry_at <= now())
       and c.pos >= archived -- what it would go on with is gone: expired
       and (c.pos < least(head, r.stop_at)
            or exists (select from pgmill.parked_key k where k.subscription = s.subscription and k.shard = s.shard and k.replay_pos is not null))
       and not exists (select from pgmill.river_job j
                        where j.unique_key = pgmill.claim_key(s.subscription, s.shard) and j.unique_key is not null
                          and j.unique_states is not null and pgmill.river_job_state_in_bitmask(j.unique_states, j.state))
       and exists (select from pgmill.instance_function i
                     join pgmill.instance l on l.kind = 'worker' and l.id = i.instance
                    where i.function = f.name and pgmill.is_live(l.last_seen, l.ttl, l.deregistered_at))
  ), wanted as materialized (
    select free.*,
           sure or exists (select from pgmill.log g
                            where g.pos > free.pos and g.pos <= free.upto
                              and pgmill.wants(free.likes, free.shards, free.shard, free.by_key, g.type, g.key_hash, g.target_hash)) as want
      from free
  ), claim as (
    insert into pgmill.river_job (args, kind, queue, max_attempts, unique_key, unique_states)
    select jsonb_build_object('subscription', subscription, 'shard', shard), 'subscription:' || subscription, 'subscription', 1,
           pgmill.claim_key(subscription, shard), b'01000001'
      from wanted where want
    on conflict (unique_key) where unique_key is not null and unique_states is not null
                               and pgmill.river_job_state_in_bitmask(unique_states, state) do nothing
    returning 1
  ), move as (
    insert into pgmill.cursor (subscription, shard, n, pos)
    select subscription, shard, n + 1, upto from wanted where not want
    on conflict do nothing
    returning subscription, shard, n
  )
  select (select count(*) from claim), (select count(*) from move) into claims, moved;

  if moved > 0 then
    delete from pgmill.cursor c using pgmill.shard s
     where (names is null or s.subscription = any (names)) and c.subscription = s.subscription and c.shard = s.shard
       and c.n < (select max(m.n) - 20 from pgmill.cursor m where m.subscription = s.subscription and m.shard = s.shard)
       and c.n >= (select max(m.n) - 60 from pgmill.cursor m where m.subscription = s.subscription and m.shard = s.shard);
  end if;
end $$;

-- May this host judge others? Its own lease has been unbroken for one ttl.
create or replace function pgmill.may_rescue(me text) returns boolean
language sql stable
as $$
  select exists (select from pgmill.instance i
                  where i.kind = 'worker' and i.id = me and now() - i.since >= i.ttl
                    and pgmill.is_live(i.last_seen, i.ttl, i.deregistered_at))
$$;

-- Ends the sessions of dead instances: they may still hold locks.
create or replace function pgmill.end_sessions() returns void
language sql volatile
as $$
  select pg_terminate_backend(a.pid)
    from pg_stat_activity a
    join pgmill.instance i on i.kind = 'worker' and a.application_name = 'pgmill ' || i.id
   where a.datname = current_database() and a.usename = current_user and a.pid <> pg_backend_pid()
     and not pgmill.is_live(i.last_seen, i.ttl, i.deregistered_at) and now() - i.last_seen < interval '1 hour'
$$;

-- Takes claims back from instances whose lease is gone, if the caller's own lease
-- has been unbroken for one ttl (after a pause of the database all leases are gone
-- at once). A shard that was being worked on becomes suspect; if an event was
-- noted, the death counts as its failed attempt; if that was the replay of a parked
-- key, the key is parked again. Rows that a stopped host has
-- locked are left for the next look; its sessions are ended now.
create or replace function pgmill.rescue(me text) returns int
language plpgsql volatile
set enable_seqscan = off
as $$
declare
  head bigint;
  taken record;
  replayed record;
  n int := 0;
begin
  if not pgmill.may_rescue(me) then
    return 0;
  end if;
  if not exists (select from pgmill.river_job j
                  where j.state = 'running' and j.queue = 'subscription'
                    and not exists (select from pgmill.instance i where i.kind = 'worker' and i.id = j.attempted_by[array_upper(j.attempted_by, 1)]
                                       and pgmill.is_live(i.last_seen, i.ttl, i.deregistered_at))) then
    return 0;
  end if;
  head := pgmill.head();
  for taken in
    with dead as (
      select j.id, j.attempted_by[array_upper(j.attempted_by, 1)] as instance
        from pgmill.river_job j
       where j.state = 'running' and j.queue = 'subscription'
         and not exists (select from pgmill.instance i where i.kind = 'worker' and i.id = j.attempted_by[array_upper(j.attempted_by, 1)]
                            and pgmill.is_live(i.last_seen, i.ttl, i.deregistered_at))
         for update skip locked
    ), gone as (
      delete from pgmill.river_job j using dead where j.id = dead.id
      returning j.args ->> 'subscription' as subscription, (j.args ->> 'shard')::int as shard, dead.instance
    )
    select subscription, shard, instance from gone
  loop
    n := n + 1;
    select l.pos, pgmill.order_key(e.scope, case when f.order_by = 'key' then e.key end, e.target) as key,
           coalesce((select p.attempts from pgmill.parked_event p where p.subscription = s.subscription and p.shard = s.shard and p.pos = l.pos), 0) as attempts
      into replayed
      from pgmill.shard s
      join pgmill.subscription f on f.name = s.subscription
      join pgmill.log l on l.pos = s.noted_pos
      join pgmill.event e on e.id = l.event_id
     where s.subscription = taken.subscription and s.shard = taken.shard
       and s.noted_pos <= (select pos from pgmill.cursor c where c.subscription = s.subscription and c.shard = s.shard order by c.n desc limit 1);
    if found then
      perform pgmill.park_event(taken.subscription, taken.shard, replayed.pos, replayed.key, replayed.attempts + 1, 'host_lost');
      update pgmill.shard s set noted_pos = null where s.subscription = taken.subscription and s.shard = taken.shard;
    end if;
    update pgmill.shard s
       set suspect_left = f.batch, noted_pos = null, -- counted once: the next holder may die before it comes to it
           attempts = case when s.noted_pos is null then s.attempts
                           when s.failing_pos = s.noted_pos then s.attempts + 1
                           else least(2, f.max_attempts) end,
           failing_pos = coalesce(s.noted_pos, s.failing_pos),
           reason = case when s.noted_pos is null then s.reason else 'host_lost' end,
           failed_at = case when s.noted_pos is null then s.failed_at else now() end,
           next_retry_at = case when s.noted_pos is null then s.next_retry_at
                                else now() + least(300, power(2, least(10, case when s.failing_pos = s.noted_pos then s.attempts else 1 end))) * interval '1 second' end,
           version = s.version + 1
      from pgmill.subscription f
     where s.subscription = taken.subscription and s.shard = taken.shard and f.name = s.subscription
       and (s.noted_pos is not null
            or (select pos from pgmill.cursor c where c.subscription = s.subscription and c.shard = s.shard order by c.n desc limit 1) < head);
  end loop;
  perform pgmill.end_sessions();
  return n;
end $$;

-- Renews the lease. broken says that it had run out before (claims may be gone);
-- known are the claims this process works on: one of its running rows that it does
-- not know after five seconds (a fetch whose answer was lost) is given back, unless
-- somebody has locked it: the lease waits for nobody.
create or replace function pgmill.renew(me text, known bigint[], why text[], out alive boolean, out broken boolean, out returned int)
language plpgsql volatile
set lock_timeout = '100ms'
set enable_seqscan = off
as $$
begin
  select not pgmill.is_live(i.last_seen, i.ttl, i.deregistered_at) into broken
    from pgmill.instance i where i.kind = 'worker' and i.id = me and i.deregistered_at is null for update;
  alive := found;
  if alive then
    update pgmill.instance set last_seen = now(), since = case when broken then now() else since end, reasons = why
     where kind = 'worker' and id = me;
    begin
      delete from pgmill.river_job j
       where j.state = 'running' and j.queue = 'subscription' and j.attempted_by[array_upper(j.attempted_by, 1)] = me
         and j.attempted_at < now() - interval '5 seconds' and j.id <> all (known);
      get diagnostics returned = row_count;
      returned := returned + pgmill.release_unknown_jobs(me, known);
    exception
      when lock_not_available then returned := 0;
    end;
  end if;
end $$;

-- One poll: what a host does each second whatever the bells say, in one call.
-- next_due_ms is when something falls due; 0: schedules of the caller's are due now.
create or replace procedure pgmill.tick(me text, seen bigint, listening boolean, out advanced bigint, out head bigint, out types text[],
                                        out rescued int, out claims int, out next_due_ms bigint, out others int)
language plpgsql
as $$
begin
  perform set_config('jit', 'off', true); -- without statistics costs look as if it paid
  if listening then
    perform pgmill.arm(false);
  end if;
  select l.advanced, l.head, l.types into advanced, head, types from pgmill.look(seen, 0) l;
  commit;
  perform set_config('jit', 'off', true);
  rescued := pgmill.rescue(me);
  commit;
  perform set_config('jit', 'off', true);
  rescued := rescued + pgmill.sweep_jobs(me);
  commit;
  perform set_config('jit', 'off', true);
  perform pgmill.remove_lanes();
  commit;
  perform set_config('jit', 'off', true);
  perform pgmill.finish_reshard(r.subscription) from pgmill.reshard r;
  select d.claims into claims from pgmill.derive_claims() d;
  perform pgmill.doze();
  select least((select ceil(extract(epoch from min(s.next_retry_at) - now()) * 1000)::bigint
                  from pgmill.shard s where s.next_retry_at > now()),
               (select ceil(extract(epoch from min(w.due_at) - now()) * 1000)::bigint from pgmill.job_waiting w where w.due_at > now() and w.due_at < 'infinity'),
               (select ceil(extract(epoch from min(i.last_seen + i.ttl) - now()) * 1000)::bigint + 1
                  from pgmill.instance i where i.kind = 'worker' and i.id <> me and i.deregistered_at is null and i.last_seen + i.ttl > now()),
               (select ceil(extract(epoch from min(l.until) - now()) * 1000)::bigint from pgmill.job_lease l where l.until > now()),
               pgmill.schedule_ms(me)) into next_due_ms;
  select count(*) into others
    from pgmill.instance i where i.kind = 'worker' and i.id <> me and pgmill.is_live(i.last_seen, i.ttl, i.deregistered_at);
end $$;
