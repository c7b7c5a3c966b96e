-- A shard in the hands of its holder.

-- What a holder of a shard has read is good as long as this is the same: it changes
-- with whatever somebody else does to the shard (a pause, a moved cursor), and with a
-- crash of the server, which takes the last positions back. Asked at the start of each
-- of a handler's transactions.
create or replace function pgmill.shard_version(name text, no int) returns int
language plpgsql stable
as $$
begin
  return (select s.version # coalesce((select e.n from pgmill.epoch e where e.one), 0)
            from pgmill.shard s where s.subscription = name and s.shard = no);
end $$;

-- What the holder goes by, and whether the claim is still its own. No row: the shard
-- is gone.
create or replace function pgmill.open_shard(claim bigint, name text, no int)
returns table (ours boolean, n bigint, pos bigint, version int, likes text[], shards int, by_key boolean, batch int, max_attempts int, on_poison text,
               timeout_ms bigint, runnable boolean, failing_pos bigint, attempts int, reason text, held boolean, suspect_left int,
               stop_at bigint, parked_keys text[], replay_keys text[])
language plpgsql volatile
set enable_seqscan = off
as $$
begin
  if not exists (select from pgmill.epoch) then
    insert into pgmill.epoch (n) values ((random() * 2147483647)::int) on conflict do nothing;
  end if;
  return query
  select exists (select from pgmill.river_job j where j.id = claim and j.state::text = 'running'), c.n, c.pos, pgmill.shard_version(open_shard.name, no), f.likes, f.shards, f.order_by = 'key', f.batch, f.max_attempts, f.on_poison,
         (extract(epoch from f.timeout) * 1000)::bigint,
         f.paused_at is null and c.pos >= pgmill.archived() and (s.next_retry_at is null or s.next_retry_at <= now()) and (s.held_at is null or s.next_retry_at is not null),
         s.failing_pos, s.attempts, s.reason, s.held_at is not null, s.suspect_left,
         (select r.stop_at from pgmill.reshard r where r.subscription = open_shard.name),
         array(select k.key from pgmill.parked_key k where k.subscription = open_shard.name and k.shard = no),
         array(select k.key from pgmill.parked_key k where k.subscription = open_shard.name and k.shard = no and k.replay_pos is not null)
    from pgmill.subscription f
    join pgmill.shard s on s.subscription = f.name and s.shard = no and no < f.shards
   cross join lateral (select x.n, x.pos from pgmill.cursor x where x.subscription = f.name and x.shard = no order by x.n desc limit 1) c
   where f.name = open_shard.name;
end $$;

-- A crash takes back the last positions, which are committed without waiting for the
-- disk, and they are given again to whatever was committed. A host may still know the
-- head of before: MI102 until the log is as long as it was. What was read by then is
-- shard_version's to refuse.
create or replace function pgmill.check_head(upto bigint) returns void
language plpgsql stable
as $$
begin
  if upto > pgmill.head() then
    raise exception using errcode = 'MI102', message = 'positions were taken back by a crash';
  end if;
end $$;

-- The next events of a shard: positions in (after, upto], at most take of them.
-- at_most: upto may be beyond the head; else the caller has seen it.
create or replace function pgmill.read_shard(after bigint, upto bigint, take int, likes text[], shards int, no int, by_key boolean, at_most boolean default false)
returns table (pos bigint, id bigint, type text, target text, key text, scope text, trace_id text, emitted_at timestamptz, data jsonb)
language plpgsql stable
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
begin
  if at_most then
    upto := least(upto, pgmill.head());
  else
    perform pgmill.check_head(upto);
  end if;
  return query
  select l.pos, e.id, e.type, e.target, e.key, e.scope, e.trace_id, e.emitted_at, e.data
    from (select g.pos, g.event_id from pgmill.log g
           where g.pos > after and g.pos <= upto
             and g.type like any (likes)
             and (shards = 1 or (case when by_key then g.key_hash else g.target_hash end & 2147483647) % shards = no)
           order by g.pos limit take) l
    join pgmill.event e on e.id = l.event_id
   order by l.pos;
end $$;

-- The events of one parked key between its replay position and the main cursor.
create or replace function pgmill.read_key(name text, no int, of_key text, take int, by_key boolean)
returns table (pos bigint, id bigint, type text, target text, key text, scope text, trace_id text, emitted_at timestamptz, data jsonb)
language plpgsql stable
set enable_seqscan = off
as $$
begin
  return query
  select l.pos, e.id, e.type, e.target, e.key, e.scope, e.trace_id, e.emitted_at, e.data
    from pgmill.parked_key k
    join pgmill.subscription f on f.name = k.subscription
   cross join lateral (select c.pos from pgmill.cursor c where c.subscription = read_key.name and c.shard = no order by c.n desc limit 1) c
    join pgmill.log l on l.pos > k.replay_pos and l.pos <= c.pos
                     and case when by_key then l.key_hash else l.target_hash end = k.key_hash and l.type like any (f.likes)
    join pgmill.event e on e.id = l.event_id
   where k.subscription = read_key.name and k.shard = no and k.key = of_key and k.replay_pos is not null
     and pgmill.order_key(e.scope, case when by_key then e.key end, e.target) = of_key
   order by l.pos limit take;
end $$;

-- The wall: the claim must still be this host's, and stays so until the commit.
-- Touches the claim's row, so it is always the last statement before the commit.
create or replace function pgmill.fence(claim bigint) returns void
language plpgsql volatile
set enable_seqscan = off
as $$
begin
  perform 1 from pgmill.river_job where id = claim and state::text = 'running' for key share;
  if not found then
    raise exception using errcode = 'MI101', message = 'lease lost';
  end if;
end $$;

-- Moves the cursor with what the handler wrote. A taken n means that the cursor
-- was moved by somebody else: 23505, and nothing of this transaction remains.
create or replace function pgmill.settle_shard(claim bigint, name text, no int, at_n bigint, to_pos bigint) returns void
language plpgsql volatile
set enable_seqscan = off
as $$
begin
  perform pgmill.check_head(to_pos);
  insert into pgmill.cursor (subscription, shard, n, pos) values (name, no, at_n, to_pos);
  if at_n % 10 = 0 then
    delete from pgmill.cursor where subscription = name and shard = no and n between at_n - 30 and at_n - 10;
  end if;
  perform pgmill.fence(claim);
end $$;

-- After the failing or a suspect event went well: forget the failure.
create or replace function pgmill.clear_shard(name text, no int, passed int) returns void
language sql volatile
as $$
  update pgmill.shard
     set failing_pos = null, attempts = 0, reason = null, failed_at = null, next_retry_at = null, held_at = null, noted_pos = null,
         suspect_left = greatest(0, suspect_left - passed)
   where subscription = name and shard = no
$$;

-- A suspect shard's next event, noted before it is handled.
create or replace function pgmill.note_shard(claim bigint, name text, no int, at_pos bigint) returns void
language plpgsql volatile
as $$
begin
  update pgmill.shard set noted_pos = at_pos where subscription = name and shard = no;
  perform pgmill.fence(claim);
end $$;

-- Gives a claim back: deleted with the row it belongs to, last.
create or replace function pgmill.release_claim(claim bigint) returns void
language plpgsql volatile
set enable_seqscan = off
as $$
begin
  delete from pgmill.river_job where id = claim and state::text = 'running';
  if not found then
    raise exception using errcode = 'MI101', message = 'lease lost';
  end if;
end $$;

-- Writes down a failed attempt and gives the claim back. wait_ms null: no retry.
create or replace function pgmill.fail_shard(claim bigint, name text, no int, at_pos bigint, tries int, why text, wait_ms bigint, hold boolean) returns void
language plpgsql volatile
as $$
begin
  update pgmill.shard
     set failing_pos = at_pos, attempts = tries, reason = why, failed_at = now(), noted_pos = null,
         next_retry_at = now() + wait_ms * interval '1 millisecond',
         held_at = case when hold then coalesce(held_at, now()) end
   where subscription = name and shard = no;
  perform pgmill.release_claim(claim);
end $$;

-- Sets one event aside and its key with it; the cursor goes on. False: the shard
-- has a thousand keys parked already, hold instead.
create or replace function pgmill.park_event(name text, no int, at_pos bigint, of_key text, tries int, why text) returns boolean
language plpgsql volatile
as $$
begin
  if (select count(*) from pgmill.parked_key where subscription = name and shard = no and key <> of_key) >= 1000 then
    return false;
  end if;
  insert into pgmill.parked_key (subscription, shard, key, key_hash, from_pos)
  values (name, no, of_key, hashtext(of_key), at_pos)
  on conflict (subscription, shard, key) do update set from_pos = excluded.from_pos, replay_pos = null, parked_at = now();
  insert into pgmill.parked_event (subscription, shard, key, pos, event_id, reason, attempts, scope, trace_id)
  select name, no, of_key, at_pos, l.event_id, why, tries, e.scope, e.trace_id
    from pgmill.log l join pgmill.event e on e.id = l.event_id where l.pos = at_pos
  on conflict (subscription, shard, pos) do update set reason = excluded.reason, attempts = excluded.attempts, parked_at = now();
  return true;
end $$;
