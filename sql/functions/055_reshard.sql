-- A subscription's number of shards, changed under way. The order of each key is
-- kept, because all shards first come to the same position, and only then does
-- another shard go on with the key.

-- Changes how many shards a subscription has. They work up to the position that the
-- furthest has reached or fails at; then the new ones take over, at the next look of
-- any host.
create or replace function mill.reshard_subscription(name text, shards int, reason text default null) returns text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
declare
  had int;
begin
  select f.shards into had from pgmill.subscription f where f.name = reshard_subscription.name for update;
  if not found then
    raise exception using errcode = 'MI404', message = format('no subscription %s; see mill.subscriptions', quote_literal(name));
  elsif shards is null or shards not between 1 and 1024 then
    raise exception using errcode = 'MI001', message = 'a subscription has 1 to 1024 shards';
  elsif exists (select from pgmill.schedule d where d.name = reshard_subscription.name) then
    raise exception using errcode = 'MI409', message = 'how many ticks of a schedule run together is said by its declaration';
  end if;
  delete from pgmill.reshard r where r.subscription = name;
  if shards <> had then
    insert into pgmill.reshard (subscription, shards, stop_at)
    select name, reshard_subscription.shards,
           greatest((select max(c.pos) from pgmill.cursor c where c.subscription = name),
                    (select max(s.failing_pos) from pgmill.shard s where s.subscription = name));
  end if;
  perform pgmill.touch(name);
  perform pgmill.note_audit('subscription.reshard', format('%s: %s to %s shards', name, had, shards), reason);
  return case when shards = had then had || ' shards' else format('%s to %s shards, as soon as all are at one position', had, shards) end;
end $$;

-- Gives the shards of a subscription to their successors, if all are at the position
-- where they stop and nobody works on one. A shard that was too fast for the order to
-- stop is where the others have to go. What is failing has to be resolved first.
create or replace function pgmill.finish_reshard(name text) returns boolean
language plpgsql volatile
set enable_seqscan = off
as $$
declare
  r record;
  last record;
begin
  select * into r from pgmill.reshard x where x.subscription = name for update skip locked;
  if not found then
    return false;
  end if;
  perform from pgmill.subscription f where f.name = finish_reshard.name for update;
  if exists (select from pgmill.river_job j where j.kind = 'subscription:' || name and j.state = 'running') then
    return false;
  end if;
  delete from pgmill.river_job j where j.kind = 'subscription:' || name and j.state = 'available';
  -- Nobody has a claim, so nobody can settle: what is read now stays so.
  select min(c.pos) as low, max(c.pos) as high, max(c.n) as n into last
    from pgmill.shard s
   cross join lateral (select x.pos, x.n from pgmill.cursor x where x.subscription = s.subscription and x.shard = s.shard order by x.n desc limit 1) c
   where s.subscription = name;
  if last.high > r.stop_at then
    update pgmill.reshard x set stop_at = last.high where x.subscription = name;
    perform pgmill.touch(name);
    return false;
  elsif last.low < r.stop_at
     or exists (select from pgmill.shard s where s.subscription = name and s.failing_pos is not null)
     or exists (select from pgmill.parked_key k where k.subscription = name and k.replay_pos is not null) then
    return false;
  end if;
  update pgmill.subscription f set shards = r.shards where f.name = finish_reshard.name;
  insert into pgmill.shard (subscription, shard, suspect_left, version)
  select name, g, (select max(s.suspect_left) from pgmill.shard s where s.subscription = name), (select max(s.version) + 1 from pgmill.shard s where s.subscription = name)
    from generate_series(0, r.shards - 1) g
  on conflict (subscription, shard) do update set suspect_left = excluded.suspect_left, version = excluded.version, noted_pos = null;
  delete from pgmill.shard s where s.subscription = name and s.shard >= r.shards;
  delete from pgmill.cursor c where c.subscription = name;
  insert into pgmill.cursor (subscription, shard, n, pos)
  select name, g, last.n + 1, r.stop_at from generate_series(0, r.shards - 1) g;
  update pgmill.parked_key k set shard = (k.key_hash & 2147483647) % r.shards where k.subscription = name;
  update pgmill.parked_event p set shard = (hashtext(p.key) & 2147483647) % r.shards where p.subscription = name;
  delete from pgmill.reshard x where x.subscription = name;
  perform pgmill.note_audit('subscription.resharded', format('%s: %s shards from %s on', name, r.shards, r.stop_at), null);
  if pg_notification_queue_usage() < 0.5 then
    perform pg_notify('pgmill', '');
  end if;
  return true;
end $$;
