-- Admission: which jobs may run now, and their claims, in one step, asked for by who
-- would run them. Everything that a job can wait for is decided here: due time, who
-- knows the topic, demands, limits and turns. A claim is born running.

-- Inlined, as convert_to would not be; ids have no backslash.
create or replace function pgmill.job_claim_key(job text) returns bytea
language sql immutable parallel safe
as $$ select ('job:' || job)::bytea $$;

-- The demand itself: a mark before it says that the job comes again (^) or that hosts
-- died with it (!).
create or replace function pgmill.plain_demand(demand text) returns text
language sql immutable parallel safe
as $$ select ltrim(demand, '^!') $$;

-- The pools of a topic that a demand (null: none) leaves: the one that it prefers, and of
-- those the ones that offer all it requires (C28).
create or replace function pgmill.pools_for(topic text, demand jsonb) returns text[]
language plpgsql stable
as $$
begin
  return array(select p from unnest(coalesce(pgmill.topic_pools(topic), '{default}')) p
                where p = coalesce(demand ->> 'pool', p)
                  and pgmill.pool_offers(p) @> array(select jsonb_array_elements_text(coalesce(demand -> 'requires', '[]'))));
end $$;

-- May who is of these pools, with these labels and this name, run a job with this demand?
-- Who names no pools (null) is of none: it has its topics wherever they are mapped, but
-- nothing that asks for a pool or what one offers. A job that prefers a worker goes to any
-- other one only while that one, of the job's own scope or of none, is not live or may not
-- run it itself (C32).
drop function if exists pgmill.suits(text, text, text, text[], jsonb); -- it did not know the scope
create or replace function pgmill.suits(demand text, topic text, me text, pools text[], labels jsonb, scope text) returns boolean
language plpgsql stable
as $$
declare
  d jsonb;
begin
  if pools is not null and not pools && coalesce(pgmill.topic_pools(topic), '{default}') then
    return false;
  elsif pgmill.plain_demand(demand) = '' then
    return true;
  end if;
  d := pgmill.plain_demand(demand)::jsonb;
  if d ?| '{pool,requires}' and (pools && pgmill.pools_for(topic, d)) is not true then
    return false;
  elsif d ? 'placement' and not coalesce(labels, '{}') @> (d -> 'placement') then
    return false;
  elsif d ? 'worker' and d ->> 'worker' <> pgmill.worker_name(me)
        and exists (select from pgmill.instance i where i.kind in ('worker', 'outside') and i.id in (d ->> 'worker', suits.scope || '/' || (d ->> 'worker')) and pgmill.is_live(i.last_seen, i.ttl, i.deregistered_at)
                       and pgmill.suits((d - 'worker')::text, topic, i.id, i.pools, i.labels, suits.scope)) then
    return false;
  end if;
  return true;
end $$;

-- The newest row of each lane of these topics that this caller may take from; null:
-- none. A walk from lane to lane by the index, so that what it costs is the number of
-- lanes; statement by statement, as the usual number is one.
create or replace function pgmill.lanes_for(me text, topics text[], pools text[], labels jsonb) returns pgmill.lane[]
language plpgsql stable
as $$
#variable_conflict use_column
declare
  name text;
  at pgmill.lane;
  lanes pgmill.lane[];
begin
  foreach name in array topics loop
    select * into at from pgmill.lane l where l.topic = name order by l.topic, l.priority, l.demand, l.scope, l.n desc limit 1;
    while found loop
      if pgmill.in_scope(at.scope) and (pools is null and at.demand in ('', '^', '!') or pgmill.suits(at.demand, name, me, pools, labels, at.scope)) then
        lanes := lanes || at;
      end if;
      select * into at from pgmill.lane l
       where l.topic = name and (l.priority, l.demand, l.scope) > (at.priority, at.demand, at.scope)
       order by l.topic, l.priority, l.demand, l.scope, l.n desc limit 1;
    end loop;
  end loop;
  return lanes;
end $$;

-- The number that no live claim of a job is below.
create or replace function pgmill.claims_floor() returns bigint
language plpgsql stable
as $$
begin
  return (select f.low from pgmill.claim_floor f order by f.n desc limit 1);
end $$;

-- Raises it, if it is worth it. Under admission's lock, in read committed: every claim
-- there is was committed before this statement's snapshot.
create or replace function pgmill.raise_claims_floor() returns void
language plpgsql volatile
set enable_seqscan = off
as $$
declare
  worth constant int := 1000; -- numbers
  newest constant bigint := coalesce(pg_sequence_last_value('pgmill.river_job_id_seq'), 0);
  old record;
  first bigint;
begin
  select f.n, f.low into old from pgmill.claim_floor f order by f.n desc limit 1;
  if newest - old.low < 2 * worth then
    return;
  end if;
  first := coalesce((select j.id from pgmill.river_job j where j.id >= old.low and j.state::text = 'running' and j.queue || '' = 'job' order by j.id limit 1), newest + 1);
  if first - old.low >= worth then
    insert into pgmill.claim_floor (n, low) values (old.n + 1, first);
    delete from pgmill.claim_floor f where f.n between old.n - 20 and old.n - 3;
  end if;
end $$;

-- Lanes are unnested under their own columns' names, without a list of them: a column that
-- a next version adds would move the others (F76).

-- What is left to each lane by the limits of its topic (with its rate) and scope, counted
-- from live claims; null: no limit. Suspects are one at a time of each host, in all lanes.
create or replace function pgmill.lane_room(me text, lanes pgmill.lane[]) returns pgmill.room[]
language plpgsql stable
as $$
#variable_conflict use_column
begin
  return array(
    with live as materialized (
      select j.kind as topic, j.args ->> 'scope' as scope, count(*) as n, count(*) filter (where j.args ? 'suspect' and j.attempted_by[1] = me) as suspects
        from pgmill.river_job j where j.id >= pgmill.claims_floor() and j.state::text = 'running' and j.queue || '' = 'job' group by 1, 2 -- by id alone: what has this state is full of the dead
    )
    select row(least(t.concurrency - (select coalesce(sum(v.n), 0) from live v where v.topic = l.topic),
                     floor(extract(epoch from now() + t.rate_per - greatest(now(), r.tat)) * t.rate / extract(epoch from t.rate_per) + 0.0001)),
               s.max_running - (select coalesce(sum(v.n), 0) from live v where v.scope = l.scope),
               t.per_scope - (select coalesce(sum(v.n), 0) from live v where v.topic = l.topic and v.scope = l.scope),
               case when starts_with(l.demand, '!') then 1 - (select coalesce(sum(v.suspects), 0) from live v) end)::pgmill.room
      from unnest(lanes) with ordinality as l
      left join pgmill.topic t on t.name = l.topic
      left join pgmill.scope_limit s on s.scope = l.scope
      left join lateral (select r.tat from pgmill.topic_rate r where r.topic = t.name order by r.n desc limit 1) r on true
     order by l.ordinality);
end $$;

-- Which heads, given in the order of their turns, have room: at most slots. Those whose
-- key is at its limit are moved aside, so that nobody waits behind them, to come back
-- (see pgmill.unblock) by priority and in their order; one that was let back and has to go
-- again is the first of its priority. Of one key those that come again are before new ones.
create or replace function pgmill.within_limits(lanes pgmill.lane[], room pgmill.room[], ords bigint[], places tid[], slots int, keyed boolean) returns boolean[]
language plpgsql volatile
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  over boolean[] := array_fill(false, array[cardinality(ords)]);
  aside tid[];
begin
  if keyed then
    select array_agg(k.over order by k.nth), array_agg(k.place) filter (where k.live >= k.per_key) into over, aside
      from (select h.nth, h.place, t.per_key, l.live,
                   coalesce(row_number() over (partition by w.topic, w.scope, w.key order by pgmill.plain_demand(w.demand) = w.demand, h.nth) + l.live > t.per_key, false) as over
              from unnest(places) with ordinality as h(place, nth)
              left join pgmill.job_waiting w on w.ctid = h.place and w.key is not null
              left join pgmill.topic t on t.name = w.topic
             cross join lateral (select case when t.per_key is not null then pgmill.key_live(w.topic, w.scope, w.key) end as live) l) k;
    update pgmill.job_waiting w set due_at = 'infinity', blocked = pgmill.block_key(w.topic, w.scope, w.key),
           seq = (w.priority::bigint << 52) + w.seq - case when pgmill.plain_demand(w.demand) = w.demand then 0 else 1::bigint << 50 end
      from (select w.ctid as place from unnest(aside) as h(place) join pgmill.job_waiting w on w.ctid = h.place for update of w skip locked) h
     where w.ctid = h.place;
  end if;
  return array(
    select p.fits and count(*) filter (where p.fits) over (order by p.nth) <= slots
      from (select h.nth, not h.over
                   and (count(*) filter (where not h.over) over (partition by (lanes[h.ord]).topic order by h.nth) > (room[h.ord]).topic_left) is not true
                   and (count(*) filter (where not h.over) over (partition by (lanes[h.ord]).scope order by h.nth) > (room[h.ord]).scope_left) is not true
                   and (count(*) filter (where not h.over) over (partition by (lanes[h.ord]).topic, (lanes[h.ord]).scope order by h.nth) > (room[h.ord]).both_left) is not true
                   and (count(*) filter (where not h.over) over (partition by (room[h.ord]).suspects_left is null order by h.nth) > (room[h.ord]).suspects_left) is not true as fits
              from unnest(ords, over) with ordinality as h(ord, over, nth)) p
     order by p.nth);
end $$;

-- Counts the claims numbered above before against the rates of their topics.
create or replace function pgmill.meter_rates(before bigint) returns void
language plpgsql volatile
as $$
begin
  insert into pgmill.topic_rate (topic, n, tat)
  select t.name, coalesce(r.n, 0) + 1, greatest(now(), r.tat) + j.n * t.rate_per / t.rate
    from (select j.kind, count(*) as n from pgmill.river_job j where j.id > before and j.queue || '' = 'job' and j.state::text = 'running' group by j.kind) j
    join pgmill.topic t on t.name = j.kind and t.rate is not null
    left join lateral (select r.n, r.tat from pgmill.topic_rate r where r.topic = t.name order by r.n desc limit 1) r on true;
  delete from pgmill.topic_rate r using pgmill.topic t
   where t.rate is not null and r.topic = t.name
     and r.n between (select max(x.n) - 20 from pgmill.topic_rate x where x.topic = t.name) and (select max(x.n) - 3 from pgmill.topic_rate x where x.topic = t.name);
end $$;

-- The age of the oldest transaction that may have put a job which nobody sees yet;
-- negative without one. By its lock of the table, which it took before the job was numbered,
-- and keeps to its end, prepared or not. Must be asked before the statement that reads what
-- waits: who has ended by now is seen there.
create or replace function pgmill.oldest_submitter() returns int
language sql volatile
as $$
  with held as materialized (
    select x.virtualtransaction as tx, x.locktype as kind, x.transactionid as xid
      from pg_locks x
     where x.pid is distinct from pg_backend_pid() and x.granted
       and (x.locktype = 'transactionid' and x.mode = 'ExclusiveLock'
            or x.locktype = 'relation' and x.mode = 'RowExclusiveLock' and x.relation = 'pgmill.job_waiting'::regclass
               and x.database = (select d.oid from pg_database d where d.datname = current_database()))
  )
  select coalesce(max(age(h.xid)), -2147483648) from held h
   where h.kind = 'transactionid' and exists (select from held w where w.kind = 'relation' and w.tx = h.tx)
$$;

-- Admits at most slots jobs of topics that the caller knows and makes their claims.
-- Among lanes of one priority the one with the least virtual time is next; a job moves
-- its lane on by its cost over the scope's weight. A lane that was away comes in at most
-- a thousand behind the first. Nothing is read below a lane's low: its rows numbered up
-- to mark are settled once the oldest transaction is younger than mark_xid, and of those
-- the first that is left, if any, is the next low. mark_xid is admission's own number, given
-- after mark was read: a snapshot's xmax may be the number of one that runs. One admission at a time: that is
-- what limits and turns are counted by. First the heads of the lanes in
-- the order of their turns are read, then what limits and policy say of them, then they
-- are taken: what most admissions need none of costs them nothing. A snapshot from before
-- the lock would not show what the one before admitted, so an isolated transaction is refused.
-- limited says that there are limits: what ends may make room for what waits.
do $$
begin
  if exists (select from pg_proc p where p.oid = to_regprocedure('pgmill.admit(text,text[],int,text[],jsonb)') and 'limited' <> all (p.proargnames)) then
    drop function pgmill.admit(text, text[], int, text[], jsonb);
  end if;
end $$;
create or replace function pgmill.admit(me text, topics text[], slots int, pools text[] default null, labels jsonb default null)
returns table (claim bigint, job text, topic text, attempt int, input jsonb, scope text, trace_id text, deadline_at timestamptz, max_runtime interval, limited boolean)
language plpgsql volatile
set plan_cache_mode = force_generic_plan -- its statements take longer to plan than to run
set enable_seqscan = off
set enable_hashjoin = off -- plans of a young database stay good when it has grown
set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
declare
  left_over int := slots;
  lanes pgmill.lane[];
  room pgmill.room[]; -- by lane; null: no limits
  before bigint;
  level smallint;
  many int;
  first float8;
  ords bigint[];
  places tid[];
  seqs bigint[];
  turns float8[];
  more boolean; -- some lane was not looked through
  may boolean[]; -- by head, if anything limits
  got int;
  last_seq bigint;
  numbered boolean; -- before last_seq was read: then others below last_seq may have higher numbers
  horizon pg_snapshot;
  oldest int; -- the age of the oldest transaction that may have put a job; null: not asked
  keyed boolean;
begin
  if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
    raise exception using errcode = 'MI001', message = 'jobs must be claimed in a READ COMMITTED transaction: another one does not see what runs by now, so limits and turns would be broken';
  elsif slots < 1 or not exists (select from pgmill.instance i where i.kind in ('worker', 'outside') and i.id = me and pgmill.is_live(i.last_seen, i.ttl, i.deregistered_at)) then
    return;
  elsif not exists (select from pgmill.lane l where l.topic = any (topics)) then
    return; -- nobody waits for it
  end if;
  perform pg_advisory_xact_lock(hashtextextended('pgmill.admit', 0));
  numbered := pg_current_xact_id_if_assigned() is not null;
  last_seq := coalesce(pg_sequence_last_value('pgmill.job_seq'), 0);
  horizon := pg_current_snapshot();
  perform pgmill.raise_claims_floor();
  lanes := pgmill.lanes_for(me, topics, pools, labels);
  if lanes is null then
    return;
  end if;
  if exists (select from unnest(lanes) l where l.n % 8 = 0 and last_seq - l.low > 1000 and pg_snapshot_xmin(horizon) < l.mark_xid) then
    oldest := pgmill.oldest_submitter();
  end if;
  limited := exists (select from pgmill.topic t where t.name = any (topics) and coalesce(t.concurrency, t.per_scope, t.per_key, t.rate) is not null)
          or exists (select from pgmill.scope_limit)
          or exists (select from unnest(lanes) l where starts_with(l.demand, '!'));
  keyed := limited and exists (select from pgmill.topic t where t.name = any (topics) and t.per_key is not null);
  foreach level in array array[0, 1, 2]::smallint[] loop
    exit when left_over < 1;
    select count(*), max(l.vt) into many, first from unnest(lanes) l where l.priority = level;
    continue when many = 0;
    for round in 1..5 loop
      if limited then
        room := pgmill.lane_room(me, lanes);
        before := coalesce(pg_sequence_last_value('pgmill.river_job_id_seq'), 0);
      end if;
      -- A lane of which not all was looked at may have the next turn after its last head's.
      select array_agg(h.ord), array_agg(h.place), array_agg(h.seq), array_agg(h.turn), bool_or(h.cut) into ords, places, seqs, turns, more
        from (select x.*, min(x.turn) filter (where x.cut) over () as known
                from (select l.ord, w.place, w.seq, l.turn + w.upto / l.weight as turn, w.nth = l.look and l.look < least(left_over, l.most) as cut
                        from (select o.*, o.ordinality as ord, greatest(o.vt, first - 1000) as turn, coalesce(s.weight, 1) as weight,
                                     case when t.per_key is not null then greatest(left_over, 200) -- of which many may be moved aside
                                          when many <= 4 or round > 3 then left_over else 1 + 2 * left_over / many end as look,
                                     least((room[o.ordinality]).topic_left, (room[o.ordinality]).scope_left, (room[o.ordinality]).both_left, (room[o.ordinality]).suspects_left) as most
                                from unnest(lanes) with ordinality as o
                                left join pgmill.scope_limit s on s.scope = o.scope
                                left join pgmill.topic t on keyed and t.name = o.topic
                               where o.priority = level) l
                       cross join lateral (select x.ctid as place, x.seq, sum(x.cost) over (order by x.seq) as upto, row_number() over (order by x.seq) as nth
                                             from pgmill.job_waiting x
                                            where x.topic = l.topic and x.priority = l.priority and x.demand = l.demand and x.scope = l.scope
                                              and x.due_at is null and x.seq >= l.low
                                            order by x.seq limit greatest(0, least(l.look, l.most))) w) x
               order by 4, 3) h
       where (h.turn > h.known) is not true;
      exit when ords is null;
      if limited then
        may := pgmill.within_limits(lanes, room, ords, places, left_over, keyed);
      end if;
      perform pgmill.judge(places, may, left_over);
      return query
      with head as (
        select h.ord, h.place, h.seq, h.turn, case when limited then h.may else h.nth <= left_over end as may
          from unnest(ords, places, seqs, turns, may) with ordinality as h(ord, place, seq, turn, may, nth)
      ), held as materialized (
        select h.ord, h.seq, h.turn, w.ctid as place from head h join pgmill.job_waiting w on w.ctid = h.place
         where h.may and num_nulls(w.due_at) = 1 for update of w skip locked -- by place alone: "is null" would let a plan of an empty table read all of job_waiting_lane
      ), gone as (
        delete from pgmill.job_waiting w using held h where w.ctid = h.place
        returning w.job, w.topic, w.scope, w.key, w.attempt, w.demand
      ), claim as (
        insert into pgmill.river_job (state, attempt, attempted_at, attempted_by, args, kind, queue, max_attempts, unique_key, unique_states)
        select 'running', 1, clock_timestamp(), array[me],
               jsonb_strip_nulls(jsonb_build_object('job', g.job, 'attempt', g.attempt, 'scope', g.scope, 'key', g.key, 'suspect', nullif(starts_with(g.demand, '!'), false))),
               g.topic, 'job', 1, pgmill.job_claim_key(g.job), b'01000001'
          from gone g
          join pgmill.job j on j.id = g.job and j.state || '' = 'PENDING' -- or a cancel met the settle that put it here; by its id alone: few may have waited when the statistics were taken
        returning id, args, kind
      ), moved as (
        insert into pgmill.lane (topic, priority, demand, scope, n, vt, low, mark, mark_xid)
        select l.topic, l.priority, l.demand, l.scope, l.n + 1, p.turn,
               case when k.known then greatest(l.low, least(l.mark + 1, p.seq + 1, r.seq))
                    else l.low end,
               case when k.known and not numbered then last_seq else l.mark end,
               case when k.known and not numbered then pg_current_xact_id() else l.mark_xid end
          from unnest(lanes) with ordinality as l
          join (select h.ord, max(h.turn) as turn, max(h.seq) as seq from held h group by h.ord) p on p.ord = l.ordinality
          left join (select x.ord, min(x.seq) as seq from (select h.ord, h.seq from head h except all select q.ord, q.seq from held q) x group by x.ord) r on r.ord = l.ordinality
         cross join lateral (select pg_snapshot_xmin(horizon) >= l.mark_xid or oldest <= age(l.mark_xid::xid) as known) k
      )
      select c.id, j.id, c.kind, (c.args ->> 'attempt')::int, j.input, j.scope, j.trace_id, j.deadline_at, least(j.max_runtime, coalesce(o.max_runtime, t.max_runtime, (select d.max_runtime from pgmill.topic_timeout d where d.topic = '*'), interval '9000 seconds')), limited
        from claim c
        join pgmill.job j on j.id = c.args ->> 'job'
        left join pgmill.topic t on t.name = c.kind
        left join pgmill.topic_timeout o on o.topic = c.kind;
      get diagnostics got = row_count;
      exit when got = 0 and not keyed; -- else what has room may stand behind what was moved aside
      if limited then
        perform pgmill.meter_rates(before);
      end if;
      left_over := left_over - got;
      delete from pgmill.lane l using unnest(lanes) o
       where o.priority = level and o.n % 64 = 0 and l.topic = o.topic and l.priority = o.priority and l.demand = o.demand and l.scope = o.scope
         and l.n between o.n - 200 and o.n - 3; -- below are the dead, whom an old snapshot keeps
      exit when left_over < 1 or not (limited or more or got < cardinality(ords)); -- else there is nothing behind these
      lanes := pgmill.lanes_for(me, topics, pools, labels);
    end loop;
  end loop;
end $$;

-- The name that jobs wait under while their key is at its limit; null: they have none.
create or replace function pgmill.block_key(topic text, scope text, key text) returns text
language sql immutable parallel safe
as $$ select case when key is not null then jsonb_build_array(topic, scope, key)::text end $$;

-- How many jobs of a key run. By its own index and no other: what has a claim's state
-- and queue is all that runs, and full of the dead.
create or replace function pgmill.key_live(topic text, scope text, key text) returns bigint
language plpgsql stable
as $$
#variable_conflict use_column
begin
  return (select count(*) from pgmill.river_job j
   where j.kind = key_live.topic and j.args ->> 'scope' = key_live.scope and j.args ->> 'key' = key_live.key and j.args ? 'key'
     and j.state::text = 'running' and j.queue || '' = 'job');
end $$;

-- Names that jobs wait under, at most so many: all if there are no more, else those
-- that come after one that was taken by lot, so that each has its turn at some poll.
create or replace function pgmill.some_blocked(most int) returns setof text
language plpgsql stable
set enable_seqscan = off
as $$
declare
  pages constant float8 := pg_relation_size('pgmill.job_waiting') / 8192.0;
  last constant text := coalesce((select w.blocked from pgmill.job_waiting w tablesample system (least(100, 1000 / greatest(pages, 1))) where w.blocked is not null limit 1),
                                 (select w.blocked from pgmill.job_waiting w where w.blocked is not null order by w.blocked desc limit 1));
  b text := last;
begin
  for n in 1..most loop
    b := coalesce((select w.blocked from pgmill.job_waiting w where w.blocked > b order by w.blocked limit 1),
                  (select w.blocked from pgmill.job_waiting w where w.blocked is not null order by w.blocked limit 1));
    exit when b is null;
    return next b;
    exit when b = last;
  end loop;
end $$;

-- Lets jobs of keys that are not at their limit any more back into their lanes, as many
-- as there is room for, the first by their seq (see pgmill.within_limits). keys are those
-- of which something ended; null: some of all, for a poll that makes up for an end which
-- met the admission that moved a job aside.
drop function if exists pgmill.unblock(text);
create or replace function pgmill.unblock(keys text[] default null) returns int
language plpgsql volatile
set enable_seqscan = off
set plan_cache_mode = force_generic_plan -- for open_lane
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
  foreach b in array coalesce(keys, array(select pgmill.some_blocked(500))) loop
    select coalesce(t.per_key, 1000000) - pgmill.key_live(b::jsonb ->> 0, b::jsonb ->> 1, b::jsonb ->> 2)
           - (select count(*) from pgmill.job_waiting w where w.topic || '' = b::jsonb ->> 0 and w.scope = b::jsonb ->> 1 and w.key = b::jsonb ->> 2 -- by the key: a lane may be long
                and w.due_at is null and starts_with(w.demand, '^') and w.priority <= f.priority) into room
      from (select x.priority from pgmill.job_waiting x where x.blocked = b order by x.seq limit 1) f left join pgmill.topic t on t.name = b::jsonb ->> 0;
    continue when coalesce(room, 0) < 1;
    perform pg_current_xact_id(); -- before nextval, as in put_job
    update pgmill.job_waiting w set due_at = case when pgmill.open_lane(w.topic, w.priority, x.demand, w.scope, true) then null else now() end,
           blocked = null, seq = nextval('pgmill.job_seq'), demand = x.demand, since = now()
      from (select x.ctid as place, case when starts_with(x.demand, '!') then x.demand else '^' || ltrim(x.demand, '^') end as demand
              from pgmill.job_waiting x where x.blocked = b order by x.seq limit room for update skip locked) x
     where w.ctid = x.place;
    get diagnostics got = row_count;
    n := n + got;
  end loop;
  return n;
end $$;

-- Puts what is due into its lane.
create or replace function pgmill.promote_jobs() returns int
language plpgsql volatile
set enable_seqscan = off
set plan_cache_mode = force_generic_plan -- for open_lane
as $$
declare
  n int;
begin
  if not exists (select from pgmill.job_waiting w where w.due_at <= now()) then
    return 0; -- a poll that finds nothing writes nothing
  end if;
  perform pg_current_xact_id(); -- before nextval, as in put_job
  update pgmill.job_waiting w set due_at = null, seq = nextval('pgmill.job_seq'), since = now()
    from (select d.row from (select x.ctid as row, x.topic, x.priority, x.demand, x.scope from pgmill.job_waiting x
                              where x.due_at <= now() order by x.due_at limit 10000 for update skip locked) d
            join lateral (select pgmill.open_lane(d.topic, d.priority, d.demand, d.scope, true) as open) l on l.open) due
   where w.ctid = due.row;
  get diagnostics n = row_count;
  return n;
end $$;

-- The topics that go to these pools. The default one has job.default, unless a document
-- says otherwise (C26).
create or replace function pgmill.topics_of(pools text[]) returns text[]
language plpgsql stable
as $$
begin
  return array(select p.topic from pgmill.pool_topic p where p.pool = any (pools)
               union select 'job.default' where 'default' = any (pools) and pgmill.topic_pools('job.default') is null);
end $$;

-- The pools that a topic is mapped to; null: it is in no document.
create or replace function pgmill.topic_pools(topic text) returns text[]
language plpgsql stable
as $$
#variable_conflict use_column
begin
  return (select array_agg(p.pool order by p.place) from pgmill.pool_topic p where p.topic = topic_pools.topic);
end $$;

create or replace function pgmill.pool_offers(pool text) returns text[]
language plpgsql stable
as $$
#variable_conflict use_column
begin
  return (select coalesce((select p.requires from pgmill.pool p where p.name = pool_offers.pool), '{}'));
end $$;
