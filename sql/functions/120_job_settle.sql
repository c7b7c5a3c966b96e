-- The end of an attempt: who says so must still have the claim, which is deleted in the
-- same statement. What follows from it is decided here alone, for hosts, outside
-- workers and the rescue.

-- How long a job rests after its attempt-th failure; null: it has failed for good.
-- Doubles from backoff to backoff_max, spread in [0, 1) takes up to a quarter off. A
-- host's first death with the job costs no rest.
create or replace function pgmill.job_rest(attempt int, max_attempts int, backoff interval, backoff_max interval, retry_on text[], reason text, final boolean, spread float8)
returns interval
language sql immutable parallel safe
as $$
  select case when final or attempt >= max_attempts then null
              when reason in ('host_lost', 'lease_lost') then case when attempt = 1 then interval '0' else least(backoff_max, backoff * power(2, least(attempt - 2, 30))) end
              when retry_on is not null and not reason = any (retry_on) then null
              else least(backoff_max, backoff * power(2, least(attempt - 1, 30))) * (1 - spread / 4) end
$$;

-- Ends claims: outcome is succeeded, failed or released (back to where it waited, the
-- attempt does not count, after rests_ms). Answers those that were still running; of the others
-- nothing is written. state is the job's, PENDING if it waits again, rest how long for.
create or replace function pgmill.end_claims(claims bigint[], outcomes text[], reasons text[], finals boolean[], outputs jsonb[], rests_ms bigint[] default null)
returns table (claim bigint, job text, state text, rest interval)
language plpgsql volatile
set plan_cache_mode = force_generic_plan -- its statements take longer to plan than to run
set enable_seqscan = off
set enable_hashjoin = off -- plans of a young database stay good when it has grown
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  ended_key text; -- the name that others of its key wait under; null: it has none
  ended_keys text[] := '{}';
begin
  if outcomes is null then -- all went well
    for claim, job, state, rest, ended_key in
    with gone as (
      delete from pgmill.river_job j using unnest(claims, outputs) r(claim, output)
       where j.id = r.claim and j.state::text = 'running' and j.queue || '' = 'job' -- by id alone: what has this state is full of the dead
      returning j.id, j.args ->> 'job' as job, (j.args ->> 'attempt')::int as attempt, j.attempted_at, j.attempted_by[1] as instance, r.output
    ), ended as (
      update pgmill.job j
         set state = 'SUCCEEDED', reason = null, attempt = g.attempt, started_at = g.attempted_at, finished_at = clock_timestamp(), updated_at = clock_timestamp(),
             instance = g.instance, output = g.output
        from gone g where j.id = g.job and j.state || '' = 'PENDING' -- by its id alone: few may have waited when the statistics were taken
      returning g.id, j.id as job, j.state, j.scope, j.topic, j.key, j.unique_key
    ), freed as (
      delete from pgmill.job_unique u using ended e
       where e.unique_key is not null and u.scope = e.scope and u.topic = e.topic and u.key = e.unique_key and u.job = e.job
    )
    select e.id, e.job, e.state, null::interval, pgmill.block_key(e.topic, e.scope, e.key) from ended e
    loop
      return next;
      if ended_key is not null then
        ended_keys := ended_keys || ended_key;
      end if;
    end loop;
  else
    perform pg_current_xact_id(); -- before nextval, as in put_job
    for claim, job, state, rest, ended_key in
    with gone as materialized (
      delete from pgmill.river_job j using unnest(claims, outcomes, reasons, finals, outputs, rests_ms) r(claim, outcome, reason, final, output, rest_ms)
       where j.id = r.claim and j.state::text = 'running' and j.queue || '' = 'job' -- by id alone: what has this state is full of the dead
      returning j.id, j.args ->> 'job' as job, (j.args ->> 'attempt')::int as attempt, j.args ? 'suspect' as suspect, j.attempted_at, j.attempted_by[1] as instance, r.outcome, r.reason, r.final, r.output, r.rest_ms
    ), verdict as materialized (
      select g.*, j.scope, j.topic, j.priority, j.demand, j.cost, j.key, j.unique_key, j.trace_id, j.deadline_at, j.max_queue_wait, v.rest,
             case when g.outcome = 'succeeded' then 'SUCCEEDED'
                  when g.outcome = 'released' then 'PENDING'
                  when j.deadline_at <= now() then 'TIMEOUT'
                  when v.rest is not null then 'PENDING'
                  when g.reason in ('timeout', 'deadline') then 'TIMEOUT' else 'FAILED' end as next
        from gone g
        join pgmill.job j on j.id = g.job and j.state || '' = 'PENDING'
        left join pgmill.topic t on t.name = j.topic
       cross join lateral (select case when g.outcome = 'failed' then
                                    pgmill.job_rest(g.attempt, coalesce(j.max_attempts, (select o.max_attempts from pgmill.topic_timeout o where o.topic = j.topic), t.max_attempts, 3), coalesce(t.backoff, interval '1 second'), coalesce(t.backoff_max, interval '5 minutes'),
                                                    t.retry_on, g.reason, g.final, random())
                                  when g.outcome = 'released' then g.rest_ms * interval '1 ms' end as rest) v
    ), ended as (
      update pgmill.job j
         set state = v.next, reason = case when v.outcome <> 'succeeded' then v.reason end, attempt = v.attempt, started_at = v.attempted_at,
             finished_at = case when v.next <> 'PENDING' then clock_timestamp() end, updated_at = clock_timestamp(), instance = v.instance,
             output = case when v.outcome = 'succeeded' then v.output end
        from verdict v where j.id = v.job and v.outcome <> 'released'
    ), back as materialized (
      select v.*, pgmill.again(v.demand, v.job, v.reason, v.suspect and v.outcome = 'released') as lane_demand from verdict v where v.next = 'PENDING'
    ), history as (
      insert into pgmill.job_attempt (job, attempt, instance, started_at, reason, scope, trace_id)
      select b.job, b.attempt, b.instance, b.attempted_at, coalesce(b.reason, 'handler_error'), b.scope, b.trace_id from back b where b.outcome <> 'released'
      on conflict do nothing
    ), lane as materialized (
      select d.topic, d.priority, d.demand, d.scope, pgmill.open_lane(d.topic, d.priority, d.demand, d.scope, true) as open
        from (select distinct b.topic, b.priority, b.lane_demand as demand, b.scope from back b) d
    ), waiting as (
      insert into pgmill.job_waiting (job, topic, priority, demand, scope, seq, cost, key, attempt, due_at, reason, expires_at)
      select b.job, b.topic, b.priority, l.demand, b.scope, nextval('pgmill.job_seq'), b.cost, b.key, b.attempt + (b.outcome <> 'released')::int,
             case when b.rest > interval '0' then now() + b.rest when not l.open then now() end,
             b.reason, least(b.deadline_at, now() + coalesce(b.rest, interval '0') + b.max_queue_wait)
        from back b
        join lane l on l.topic = b.topic and l.priority = b.priority and l.scope = b.scope and l.demand = b.lane_demand
    ), letters as (
      insert into pgmill.dead_letter (job, scope, topic, state, reason, attempts, trace_id)
      select v.job, v.scope, v.topic, v.next, coalesce(v.reason, 'handler_error'), v.attempt, v.trace_id from verdict v where v.next in ('FAILED', 'TIMEOUT')
      on conflict (job) do update set state = excluded.state, reason = excluded.reason, attempts = excluded.attempts, died_at = excluded.died_at, retried_as = null
    ), freed as (
      delete from pgmill.job_unique u using verdict v
       where v.next <> 'PENDING' and v.unique_key is not null and u.scope = v.scope and u.topic = v.topic and u.key = v.unique_key and u.job = v.job
    )
    select v.id, v.job, v.next, v.rest, pgmill.block_key(v.topic, v.scope, v.key) from verdict v
    loop
      return next;
      if ended_key is not null then
        ended_keys := ended_keys || ended_key;
      end if;
    end loop;
  end if;
  delete from pgmill.job_lease l where l.claim = any (claims);
  if ended_keys <> '{}' then
    perform pgmill.unblock(ended_keys);
  end if;
end $$;

-- The lane of a job that comes again: one for those that have been at it, and of those
-- with which hosts died twice one that each host takes from singly. A suspect that is given
-- back before it has shown that it is none stays one.
drop function if exists pgmill.again(text, text, text);
create or replace function pgmill.again(demand text, job text, reason text, suspect boolean) returns text
language sql stable
as $$
  select case when again.suspect or again.reason = 'host_lost'
                   and exists (select from pgmill.job_attempt a where a.job = again.job and a.reason = 'host_lost') then '!' else '^' end || pgmill.plain_demand(again.demand)
$$;

-- The last statement of a handler's own transaction: the job's end and the fence. What
-- end_claims does for many that went well, by plain statements of one row.
create or replace function pgmill.settle_job(claim bigint, output jsonb) returns void
language plpgsql volatile
set enable_seqscan = off
as $$
declare
  g record;
  e record;
begin
  delete from pgmill.river_job j where j.id = settle_job.claim and j.state::text = 'running' -- by id alone: what has this state is full of the dead
  returning j.args ->> 'job' as job, (j.args ->> 'attempt')::int as attempt, j.attempted_at, j.attempted_by[1] as instance into g;
  if found then
    update pgmill.job j
       set state = 'SUCCEEDED', reason = null, attempt = g.attempt, started_at = g.attempted_at, finished_at = clock_timestamp(), updated_at = clock_timestamp(),
           instance = g.instance, output = settle_job.output
     where j.id = g.job and j.state || '' = 'PENDING'
    returning j.scope, j.topic, j.key, j.unique_key into e;
  end if;
  if not found then
    raise exception using errcode = 'MI101', message = 'the claim is gone';
  end if;
  if e.unique_key is not null then
    delete from pgmill.job_unique u where u.scope = e.scope and u.topic = e.topic and u.key = e.unique_key and u.job = g.job;
  end if;
  if e.key is not null then
    perform pgmill.unblock(array[pgmill.block_key(e.topic, e.scope, e.key)]);
  end if;
end $$;

-- Cancels a job that has not ended: what waits never starts, of what runs the holder is
-- told, and whatever it still says is late. Answers the job's state; null: no such job.
create or replace function pgmill.cancel_job(id text, why text) returns text
language plpgsql volatile
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  told boolean := false;
  is_now text;
  ended_key text;
  g record; -- the claim that it was at
begin
  -- What waits before the claim, as it is admitted, and the claim before the job, as it
  -- is settled; then once more, for what went the other way meanwhile.
  for turn in 1..2 loop
    delete from pgmill.job_waiting w where w.job = cancel_job.id;
    delete from pgmill.river_job j
     where j.unique_key = pgmill.job_claim_key(cancel_job.id) and j.unique_key is not null and j.unique_states is not null
       and pgmill.river_job_state_in_bitmask(j.unique_states, j.state)
    returning j.id, (j.args ->> 'attempt')::int as attempt, j.attempted_at, j.attempted_by[1] as instance into g;
    if found then
      told := true;
      insert into pgmill.job_cancel (claim, job, instance) values (g.id, cancel_job.id, g.instance) on conflict do nothing;
    end if;
    if turn = 1 or g.id is not null then
      update pgmill.job j
         set state = 'CANCELLED', reason = coalesce(why, 'cancelled'), finished_at = clock_timestamp(), updated_at = clock_timestamp(),
             attempt = coalesce(g.attempt, j.attempt), started_at = coalesce(g.attempted_at, j.started_at), instance = coalesce(g.instance, j.instance)
       where j.id = cancel_job.id and (j.state in ('PENDING', 'APPROVAL_REQUIRED') or turn = 2)
      returning j.state, pgmill.block_key(j.topic, j.scope, j.key) into is_now, ended_key;
      exit when is_now is null;
    end if;
  end loop;
  if is_now is null then
    return (select j.state from pgmill.job j where j.id = cancel_job.id);
  end if;
  if ended_key is not null and pgmill.unblock(array[ended_key]) > 0 or told then
    perform pgmill.ring_for_jobs();
  end if;
  delete from pgmill.job_unique u using pgmill.job j
   where j.id = cancel_job.id and u.scope = j.scope and u.topic = j.topic and u.key = j.unique_key and u.job = j.id;
  return is_now;
end $$;

create or replace function mill.cancel(id text, reason text default null) returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  state text;
begin
  perform pgmill.check_reason(reason, '{cancelled}');
  state := (select pgmill.cancel_job(j.id, cancel.reason) from pgmill.job j where j.id = cancel.id and pgmill.in_scope(j.scope));
  if state is null then
    raise exception using errcode = 'P0002', message = 'no such job';
  end if;
  insert into pgmill.audit (actor, action, subject, reason) values (pgmill.actor(), 'cancel', 'job ' || id, reason);
  return state;
end $$;

-- The claims of this instance whose jobs were cancelled; each is told until the next
-- question says that it was heard, for a connection may die with the answer.
create or replace function pgmill.cancelled_jobs(me text, heard bigint[]) returns setof bigint
language plpgsql volatile
set enable_seqscan = off
as $$
begin
  if cardinality(heard) > 0 then
    delete from pgmill.job_cancel c where c.claim = any (heard) and c.instance = me;
  end if;
  return query select c.claim from pgmill.job_cancel c where c.instance = me;
end $$;

-- For hosts from before that.
create or replace function pgmill.cancelled_jobs(me text) returns setof bigint
language sql volatile
as $$ delete from pgmill.job_cancel c where c.instance = me returning c.claim $$;

-- Says that a result came for a claim that is gone: it is noted and changes nothing.
create or replace function pgmill.late_result(job text, attempt int, instance text) returns void
language sql volatile
as $$
  insert into pgmill.job_attempt (job, attempt, instance, reason, scope, trace_id)
  select j.id, late_result.attempt, late_result.instance, case when j.state in ('PENDING', 'APPROVAL_REQUIRED') then 'lease_lost' else 'late_result' end, j.scope, j.trace_id from pgmill.job j
   where j.id = late_result.job
     and (select count(*) from pgmill.job_attempt a where a.job = j.id) < 200
$$;

-- Gives back claims of jobs that this host runs without knowing it: a fetch whose
-- answer was lost.
create or replace function pgmill.release_unknown_jobs(me text, known bigint[]) returns int
language plpgsql volatile
set enable_seqscan = off
as $$
declare
  lost bigint[];
begin
  select array_agg(j.id) into lost from pgmill.river_job j
   where j.id >= pgmill.claims_floor() and j.state::text = 'running' and j.queue || '' = 'job' and j.attempted_by[1] = me
     and j.attempted_at < now() - interval '5 seconds' and j.id <> all (known);
  if lost is null then
    return 0;
  end if;
  return (select count(*) from pgmill.release_claims(lost));
end $$;

-- Puts claims back to where their jobs waited; the attempt does not count.
create or replace function pgmill.release_claims(claims bigint[]) returns table (claim bigint)
language sql volatile
as $$
  select e.claim from pgmill.end_claims(claims, array_fill('released'::text, array[cardinality(claims)]), array_fill(null::text, array[cardinality(claims)]),
                                        array_fill(false, array[cardinality(claims)]), array_fill(null::jsonb, array[cardinality(claims)])) e
$$;

-- What a poll does for jobs: rescue, what is due or too late, limits that have room.
create or replace function pgmill.sweep_jobs(me text) returns int
language plpgsql volatile
as $$
declare
  rescued int := 0;
begin
  if pgmill.may_rescue(me) then
    rescued := pgmill.rescue_jobs(me);
    if rescued > 0 then
      perform pgmill.end_sessions();
    end if;
  end if;
  perform pgmill.promote_jobs(), pgmill.expire_jobs(), pgmill.unblock();
  delete from pgmill.job_lease l where l.until < now() - interval '1 day' and not exists (select from pgmill.river_job j where j.id = l.claim); -- of cancelled jobs
  delete from pgmill.job_cancel c where c.at < now() - interval '1 hour';
  return rescued;
end $$;

-- Takes claims of jobs back from hosts and workers whose lease is gone; an outside
-- worker's is gone when the job's time is over, too. The caller's own
-- lease is fit for it: pgmill.rescue has seen to that.
create or replace function pgmill.rescue_jobs(me text) returns int
language plpgsql volatile
set enable_seqscan = off
as $$
declare
  dead bigint[];
  reasons text[];
begin
  with gone as (
    select j.id, j.args ->> 'job' as job from pgmill.river_job j
     where j.id >= pgmill.claims_floor() and j.state::text = 'running' and j.queue || '' = 'job'
       and case when exists (select from pgmill.job_lease l where l.claim = j.id)
                then (select l.until <= now() from pgmill.job_lease l where l.claim = j.id)
                else not exists (select from pgmill.instance i where i.kind = 'worker' and i.id = j.attempted_by[1]
                                    and pgmill.is_live(i.last_seen, i.ttl, i.deregistered_at)) end
     limit 10000 for update of j skip locked
  )
  select array_agg(g.id), array_agg(case when j.deadline_at <= now() then 'deadline'
                                         when exists (select from pgmill.job_lease l where l.claim = g.id and l.over_at <= now()) then 'timeout' else 'host_lost' end)
    into dead, reasons
    from gone g left join pgmill.job j on j.id = g.job;
  if dead is null then
    return 0;
  end if;
  perform from pgmill.end_claims(dead, array_fill('failed'::text, array[cardinality(dead)]), reasons,
                                 array_fill(false, array[cardinality(dead)]), array_fill(null::jsonb, array[cardinality(dead)]));
  return cardinality(dead);
end $$;

-- Ends jobs that waited longer than they may, for an approval, too.
create or replace function pgmill.expire_jobs() returns int
language plpgsql volatile
set enable_seqscan = off
as $$
declare
  n int;
begin
  with due as materialized (
    select w.job, w.attempt, pgmill.wait_reason(w.topic, w.demand, w.scope, w.blocked, w.due_at, w.reason) as reason
      from pgmill.job_waiting w where w.expires_at <= now() order by w.expires_at limit 1000 for update skip locked
  ), gone as (
    delete from pgmill.job_waiting w using due d where w.job = d.job
  ), ended as (
    update pgmill.job j
       set state = 'TIMEOUT', reason = case when j.deadline_at <= now() then 'deadline' else d.reason end, finished_at = clock_timestamp(), updated_at = clock_timestamp()
      from due d where j.id = d.job and j.state || '' in ('PENDING', 'APPROVAL_REQUIRED')
    returning j.id, j.scope, j.topic, j.state, j.reason, j.attempt, j.trace_id, j.unique_key
  ), freed as (
    delete from pgmill.job_unique u using ended e where e.unique_key is not null and u.scope = e.scope and u.topic = e.topic and u.key = e.unique_key and u.job = e.id
  )
  insert into pgmill.dead_letter (job, scope, topic, state, reason, attempts, trace_id)
  select e.id, e.scope, e.topic, e.state, e.reason, e.attempt, e.trace_id from ended e
  on conflict (job) do nothing;
  get diagnostics n = row_count;
  return n;
end $$;

-- Why what waits does not run, as a code.
create or replace function pgmill.wait_reason(topic text, demand text, scope text, blocked text, due_at timestamptz, again text) returns text
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return pgmill.wait_code(blocked, due_at, again, '-infinity', pgmill.lane_reason(topic, demand, scope));
end $$;

-- Which of the reasons counts of one that waits since then, when those of its lane's
-- first are known. What the hosts' room is, is not in the database: who looks each second takes
-- what it has room for, so that only a job that has been ready for longer than that
-- waits for room; before that it is next in line.
create or replace function pgmill.wait_code(blocked text, due_at timestamptz, again text, since timestamptz, lane text) returns text
language sql stable
as $$
  select case when blocked is not null then 'key_limit'
              when due_at > now() then coalesce(again, 'scheduled')
              when lane = 'pool_overloaded' and greatest(since, due_at) > now() - interval '2 seconds' then 'queued'
              else lane end
$$;

-- Why the first job of a lane, which is ready, is not claimed. Costs what it does: a
-- view that asks it for each job is to ask once a lane.
create or replace function pgmill.lane_reason(topic text, demand text, scope text) returns text
language plpgsql stable security definer cost 10000
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  if pgmill.topic_pools(topic) is null and not exists (select from pgmill.topic t where t.name = lane_reason.topic)
        and not exists (select from pgmill.instance_function f where f.function = lane_reason.topic)
     or pgmill.pools_for(topic, nullif(pgmill.plain_demand(demand), '')::jsonb) = '{}' then
    return 'no_pool_mapping';
  elsif not exists (select from pgmill.instance_function f join pgmill.instance i on i.id = f.instance
                     where f.function = lane_reason.topic and pgmill.serves(i.id, lane_reason.scope) and pgmill.is_live(i.last_seen, i.ttl, i.deregistered_at)) then
    return case when exists (select from pgmill.topic t where t.name = lane_reason.topic) then 'no_live_host' else 'no_workers' end;
  elsif not exists (select from pgmill.instance_function f join pgmill.instance i on i.id = f.instance
                     where f.function = lane_reason.topic and pgmill.serves(i.id, lane_reason.scope) and pgmill.is_live(i.last_seen, i.ttl, i.deregistered_at)
                       and pgmill.suits(demand, topic, i.id, i.pools, i.labels, lane_reason.scope)) then
    return 'no_workers';
  elsif exists (select from pgmill.scope_limit s where s.scope = lane_reason.scope
                   and s.max_running <= (select count(*) from pgmill.river_job j where j.state = 'running' and j.queue = 'job' and j.args ->> 'scope' = lane_reason.scope)) then
    return 'tenant_limit';
  elsif exists (select from pgmill.topic t where t.name = lane_reason.topic
                   and (t.concurrency <= (select count(*) from pgmill.river_job j where j.state = 'running' and j.queue = 'job' and j.kind = t.name)
                        or t.per_scope <= (select count(*) from pgmill.river_job j where j.state = 'running' and j.queue = 'job' and j.kind = t.name and j.args ->> 'scope' = lane_reason.scope)
                        or now() + t.rate_per - t.rate_per / t.rate < (select r.tat from pgmill.topic_rate r where r.topic = t.name order by r.n desc limit 1))) then
    return 'topic_limit';
  end if;
  return 'pool_overloaded';
end $$;
