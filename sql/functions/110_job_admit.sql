-- Admission: which jobs may run now, and their claims, in one step, asked for by who
-- would run them. Everything that a job can wait for is decided here: due time, who
-- knows the topic, demands, limits and turns. A claim is born running.

create or replace function pgmill.job_claim_key(job text) returns bytea
language sql immutable parallel safe
as $$ select convert_to('job:' || job, 'UTF8') $$;

-- The demand itself: a mark before it says that the job comes again (^) or that hosts
-- died with it (!).
create or replace function pgmill.plain_demand(demand text) returns text
language sql immutable parallel safe
as $$ select ltrim(demand, '^!') $$;

-- May who offers these pools (null: any), labels and name run a job with this demand?
-- A job that prefers a worker goes to any other one only while that one is not live.
create or replace function pgmill.suits(demand text, topic text, me text, pools text[], labels jsonb) returns boolean
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  d jsonb;
  of_topic text[];
begin
  of_topic := pgmill.topic_pools(topic);
  if pools is not null and not pools && coalesce(of_topic, '{default}') then
    return false;
  elsif pgmill.plain_demand(demand) = '' then
    return true;
  end if;
  d := pgmill.plain_demand(demand)::jsonb;
  if d ? 'pool' and not (d ->> 'pool' = any (coalesce(of_topic, '{default}')) and (pools is null or d ->> 'pool' = any (pools))) then
    return false;
  elsif d ? 'placement' and not coalesce(labels, '{}') @> (d -> 'placement') then
    return false;
  elsif d ? 'worker' and d ->> 'worker' <> me
        and exists (select from pgmill.instance i where i.kind in ('worker', 'outside') and i.id = d ->> 'worker' and pgmill.is_live(i.last_seen, i.ttl, i.deregistered_at)) then
    return false;
  elsif d ? 'requires' then
    return exists (select from unnest(coalesce(of_topic, '{default}')) p
                    where (pools is null or p = any (pools)) and pgmill.pool_offers(p) @> array(select jsonb_array_elements_text(d -> 'requires')));
  end if;
  return true;
end $$;

-- The newest row of each lane of these topics. Not language sql, nor are those that
-- admission calls: that would be planned at each call. A walk from lane to lane by the index:
-- what it costs is the number of lanes.
create or replace function pgmill.lanes(topics text[]) returns setof pgmill.lane
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
begin
  return query
  with recursive walk as (
    select f.lane, t.topic as topic from unnest(topics) t(topic)
     cross join lateral (select l as lane from pgmill.lane l where l.topic = t.topic order by l.topic, l.priority, l.demand, l.scope, l.n desc limit 1) f
    union all
    select f.lane, w.topic from walk w
     cross join lateral (select l as lane from pgmill.lane l
                          where l.topic = w.topic and (l.priority, l.demand, l.scope) > ((w.lane).priority, (w.lane).demand, (w.lane).scope)
                          order by l.topic, l.priority, l.demand, l.scope, l.n desc limit 1) f
  )
  select (lane).* from walk;
end $$;

-- What is left to each lane by the limits of its topic (with its rate) and scope, counted
-- from live claims; null: no limit. Suspects are one at a time of each host, in all lanes.
create or replace function pgmill.job_room(me text, lanes pgmill.lane[]) returns table (ord bigint, topic_left int, scope_left int, both_left int, suspects_left int)
language plpgsql volatile
as $$
#variable_conflict use_column
begin
  if lanes is null then
    return;
  end if;
  return query
  with live as materialized (
    select j.kind as topic, j.args ->> 'scope' as scope, count(*) as n, count(*) filter (where j.args ? 'suspect' and j.attempted_by[1] = me) as suspects
      from pgmill.river_job j where j.state = 'running' and j.queue = 'job' group by 1, 2
  )
  select l.ord,
         least(t.concurrency - (select coalesce(sum(v.n), 0) from live v where v.topic = l.topic),
               floor(extract(epoch from now() + t.rate_per - greatest(now(), r.tat)) * t.rate / extract(epoch from t.rate_per) + 0.0001))::int,
         (s.max_running - (select coalesce(sum(v.n), 0) from live v where v.scope = l.scope))::int,
         (t.per_scope - (select coalesce(sum(v.n), 0) from live v where v.topic = l.topic and v.scope = l.scope))::int,
         (case when starts_with(l.demand, '!') then 1 - (select coalesce(sum(v.suspects), 0) from live v) end)::int
    from unnest(lanes) with ordinality as l(topic, priority, demand, scope, n, vt, low, mark, mark_xid, at, ord)
    left join pgmill.topic t on t.name = l.topic
    left join pgmill.scope_limit s on s.scope = l.scope
    left join lateral (select r.tat from pgmill.topic_rate r where r.topic = t.name order by r.n desc limit 1) r on true;
end $$;

-- Admits at most slots jobs of topics that the caller knows and makes their claims.
-- Among lanes of one priority the one with the least virtual time is next; a job moves
-- its lane on by its cost over the scope's weight. A lane that was away comes in at most
-- a thousand behind the first. Nothing is read below a lane's low: its rows numbered up
-- to mark are settled once the oldest transaction is younger than mark_xid, and of those
-- the first that is left, if any, is the next low. One admission at a time: that is
-- what limits and turns are counted by; the commit is not waited for, since a claim that a
-- crash of the server takes back is one that nobody has.
create or replace function pgmill.admit(me text, topics text[], slots int, pools text[] default null, labels jsonb default null)
returns table (claim bigint, job text, topic text, attempt int, input jsonb, scope text, trace_id text, deadline_at timestamptz, max_runtime interval)
language plpgsql volatile
set plan_cache_mode = force_generic_plan -- its statements take longer to plan than to run
set enable_seqscan = off
set jit = off
set synchronous_commit = off
as $$
#variable_conflict use_column
declare
  left_over int := slots;
  lanes pgmill.lane[];
  round int;
  level smallint;
  got int;
  last_seq bigint;
  horizon pg_snapshot;
  limited boolean;
  keyed boolean;
begin
  if slots < 1 or not exists (select from pgmill.instance i where i.kind in ('worker', 'outside') and i.id = me and pgmill.is_live(i.last_seen, i.ttl, i.deregistered_at)) then
    return;
  end if;
  perform pg_advisory_xact_lock(hashtextextended('pgmill.admit', 0));
  last_seq := coalesce(pg_sequence_last_value('pgmill.job_seq'), 0);
  horizon := pg_current_snapshot();
  select array_agg(l) into lanes from pgmill.lanes(topics) l
   where l.topic = any (topics) and pgmill.suits(l.demand, l.topic, me, pools, labels) and pgmill.in_scope(l.scope);
  if lanes is null then
    return;
  end if;
  limited := exists (select from pgmill.topic t where t.name = any (topics) and coalesce(t.concurrency, t.per_scope, t.per_key, t.rate) is not null)
          or exists (select from pgmill.scope_limit)
          or exists (select from unnest(lanes) l where starts_with(l.demand, '!'));
  keyed := limited and exists (select from pgmill.topic t where t.name = any (topics) and t.per_key is not null);
  foreach level in array array[0, 1, 2]::smallint[] loop
    continue when not exists (select from unnest(lanes) l where l.priority = level);
    for round in 1..5 loop
      return query
      with room as materialized (
        select * from pgmill.job_room(me, case when limited then lanes end)
      ), lane as materialized (
        select o.*, greatest(o.vt, max(o.vt) over () - 1000) as turn, pgmill.scope_weight(o.scope) as weight,
               r.topic_left, r.scope_left, r.both_left, r.suspects_left, t.per_key,
               greatest(0, least(case when t.per_key is not null then greatest(left_over, 200) -- of which many may be moved aside
                                      when count(*) over () <= 4 or round > 3 then left_over else 1 + 2 * left_over / count(*) over () end,
                                 r.topic_left, r.scope_left, r.both_left, r.suspects_left))::int as share
          from unnest(lanes) with ordinality as o(topic, priority, demand, scope, n, vt, low, mark, mark_xid, at, ord)
          left join room r on r.ord = o.ord
          left join pgmill.topic t on limited and t.name = o.topic
         where o.priority = level
      ), head as materialized (
        select l.ord, l.topic, l.scope, l.topic_left, l.scope_left, l.both_left, l.suspects_left, w.row, w.job, w.seq, w.cost, w.key,
               l.turn + sum(w.cost) over (partition by l.ord order by w.seq) / l.weight as turn,
               case when l.per_key is not null and w.key is not null
                    then row_number() over (partition by l.topic, l.scope, w.key order by w.seq) + pgmill.key_live(l.topic, l.scope, w.key) > l.per_key end as over
          from lane l
         cross join lateral (select w.ctid as row, w.job, w.seq, w.cost, w.key
                               from pgmill.job_waiting w
                              where w.topic = l.topic and w.priority = l.priority and w.demand = l.demand and w.scope = l.scope
                                and w.due_at is null and w.seq >= l.low
                              order by w.seq limit l.share) w
      ), aside as (
        update pgmill.job_waiting w set due_at = 'infinity', blocked = pgmill.block_key(w.topic, w.scope, w.key)
          from (select w.ctid as row from head h join pgmill.job_waiting w on w.ctid = h.row where h.over for update of w skip locked) h
         where w.ctid = h.row
        returning w.job
      ), ranked as (
        select h.*, row_number() over (partition by h.topic order by h.turn, h.seq) as by_topic,
               row_number() over (partition by h.scope order by h.turn, h.seq) as by_scope,
               row_number() over (partition by h.topic, h.scope order by h.turn, h.seq) as by_both,
               row_number() over (partition by h.suspects_left is null order by h.turn, h.seq) as by_suspect
          from head h where h.over is not true
      ), pick as materialized (
        select r.ord, r.row, r.seq, r.turn from ranked r
         where (r.by_topic > r.topic_left) is not true and (r.by_scope > r.scope_left) is not true and (r.by_both > r.both_left) is not true
           and (r.by_suspect > r.suspects_left) is not true
         order by r.turn, r.seq limit left_over
      ), held as materialized (
        select p.ord, p.seq, p.turn, w.ctid as row from pick p join pgmill.job_waiting w on w.ctid = p.row where w.due_at is null for update of w skip locked
      ), gone as (
        delete from pgmill.job_waiting w using held h where w.ctid = h.row
        returning w.job, w.topic, w.scope, w.key, w.attempt, w.demand
      ), claim as (
        insert into pgmill.river_job (state, attempt, attempted_at, attempted_by, args, kind, queue, max_attempts, unique_key, unique_states)
        select 'running', 1, clock_timestamp(), array[me],
               jsonb_strip_nulls(jsonb_build_object('job', g.job, 'attempt', g.attempt, 'scope', g.scope, 'key', g.key, 'suspect', nullif(starts_with(g.demand, '!'), false))),
               g.topic, 'job', 1, pgmill.job_claim_key(g.job), b'01000001'
          from gone g
          join pgmill.job j on j.id = g.job and j.state = 'PENDING' -- or a cancel met the settle that put it here
        returning id, args, kind
      ), moved as (
        insert into pgmill.lane (topic, priority, demand, scope, n, vt, low, mark, mark_xid)
        select l.topic, l.priority, l.demand, l.scope, l.n + 1, p.turn,
               case when k.known then greatest(l.low, least(l.mark + 1, p.seq + 1, (select min(h.seq) from head h where h.ord = l.ord and not exists (select from held q where q.row = h.row))))
                    else l.low end,
               case when k.known then last_seq else l.mark end,
               case when k.known then pg_snapshot_xmax(horizon) else l.mark_xid end
          from lane l
          join (select h.ord, max(h.turn) as turn, max(h.seq) as seq from held h group by h.ord) p on p.ord = l.ord
         cross join lateral (select pg_snapshot_xmin(horizon) >= l.mark_xid as known) k
      ), metered as (
        insert into pgmill.topic_rate (topic, n, tat)
        select g.topic, coalesce((select r.n from pgmill.topic_rate r where r.topic = g.topic order by r.n desc limit 1), 0) + 1,
               greatest(now(), (select r.tat from pgmill.topic_rate r where r.topic = g.topic order by r.n desc limit 1)) + g.n * t.rate_per / t.rate
          from (select g.topic, count(*) as n from gone g where limited group by g.topic) g
          join pgmill.topic t on t.name = g.topic and t.rate is not null
      )
      select c.id, j.id, c.kind, (c.args ->> 'attempt')::int, j.input, j.scope, j.trace_id, j.deadline_at, coalesce(j.max_runtime, t.max_runtime)
        from claim c
        join pgmill.job j on j.id = c.args ->> 'job'
        left join pgmill.topic t on t.name = c.kind;
      get diagnostics got = row_count;
      exit when got = 0 and not keyed; -- else what has room may stand behind what was moved aside
      left_over := left_over - got;
      delete from pgmill.lane l using unnest(lanes) o
       where o.priority = level and o.n % 64 = 0 and l.topic = o.topic and l.priority = o.priority and l.demand = o.demand and l.scope = o.scope
         and l.n < o.n - 2;
      exit when left_over < 1;
      select array_agg(l) into lanes from pgmill.lanes(topics) l
       where l.topic = any (topics) and pgmill.suits(l.demand, l.topic, me, pools, labels) and pgmill.in_scope(l.scope);
    end loop;
  end loop;
end $$;

-- The name that jobs wait under while their key is at its limit.
create or replace function pgmill.block_key(topic text, scope text, key text) returns text
language sql immutable parallel safe
as $$ select jsonb_build_array(topic, scope, key)::text $$;

create or replace function pgmill.key_live(topic text, scope text, key text) returns bigint
language plpgsql stable
as $$
#variable_conflict use_column
begin
  return (select count(*) from pgmill.river_job j
   where j.state = 'running' and j.queue = 'job' and j.kind = key_live.topic and j.args ->> 'scope' = key_live.scope and j.args ->> 'key' = key_live.key);
end $$;

-- Lets jobs of keys that are not at their limit any more back into their lanes, as many
-- as there is room for. blocked names one key; null: all.
create or replace function pgmill.unblock(key text default null) returns int
language plpgsql volatile
set enable_seqscan = off
as $$
declare
  b text;
  room bigint;
  n int := 0;
  got int;
begin
  if not exists (select from pgmill.job_waiting w where w.blocked is not null) then
    return 0;
  end if;
  perform pg_current_xact_id();
  for b in
    with recursive walk as (
      (select w.blocked from pgmill.job_waiting w where w.blocked is not null and (unblock.key is null or w.blocked = unblock.key) order by w.blocked limit 1)
      union all
      select (select w.blocked from pgmill.job_waiting w where w.blocked > walk.blocked order by w.blocked limit 1) from walk where walk.blocked is not null and unblock.key is null
    )
    select blocked from walk where blocked is not null
  loop
    select coalesce(t.per_key, 1000000) - pgmill.key_live(b::jsonb ->> 0, b::jsonb ->> 1, b::jsonb ->> 2)
           - (select count(*) from pgmill.job_waiting w where w.topic = b::jsonb ->> 0 and w.scope = b::jsonb ->> 1 and w.key = b::jsonb ->> 2
                and w.due_at is null and starts_with(w.demand, '^')) into room
      from (select 1) one left join pgmill.topic t on t.name = b::jsonb ->> 0;
    continue when room < 1;
    update pgmill.job_waiting w set due_at = case when pgmill.open_lane(w.topic, w.priority, '^' || ltrim(w.demand, '^'), w.scope, true) then null else now() end,
           blocked = null, seq = nextval('pgmill.job_seq'), demand = '^' || ltrim(w.demand, '^')
     where w.job in (select x.job from pgmill.job_waiting x where x.blocked = b order by x.seq limit room for update skip locked);
    get diagnostics got = row_count;
    n := n + got;
  end loop;
  return n;
end $$;

-- Puts what is due into its lane.
create or replace function pgmill.promote_jobs() returns int
language plpgsql volatile
set enable_seqscan = off
as $$
declare
  n int;
begin
  if not exists (select from pgmill.job_waiting w where w.due_at <= now()) then
    return 0; -- a poll that finds nothing writes nothing
  end if;
  perform pg_current_xact_id(); -- before nextval, as in put_job
  update pgmill.job_waiting w set due_at = null, seq = nextval('pgmill.job_seq')
    from (select d.row from (select x.ctid as row, x.topic, x.priority, x.demand, x.scope from pgmill.job_waiting x
                              where x.due_at <= now() order by x.due_at limit 10000 for update skip locked) d
            join lateral (select pgmill.open_lane(d.topic, d.priority, d.demand, d.scope, true) as open) l on l.open) due
   where w.ctid = due.row;
  get diagnostics n = row_count;
  return n;
end $$;

create or replace function pgmill.scope_weight(scope text) returns float8
language sql stable
as $$ select coalesce((select l.weight from pgmill.scope_limit l where l.scope = scope_weight.scope), 1) $$;

-- The pools that a topic is mapped to; null: it is in no document.
create or replace function pgmill.topic_pools(topic text) returns text[]
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  return (select array_agg(p.pool order by p.place) from pgmill.pool_topic p where p.topic = topic_pools.topic);
end $$;

create or replace function pgmill.pool_offers(pool text) returns text[]
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  return (select coalesce((select p.requires from pgmill.pool p where p.name = pool_offers.pool), '{}'));
end $$;
