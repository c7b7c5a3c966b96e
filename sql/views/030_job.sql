-- Jobs as people and programs read them. No input, no output.

-- Two scans of the one table: what runs, found from the claims, and the rest. Neither
-- has a where of its own, nor a join: only then does the planner merge their pages from
-- the indexes in the order of updated_at (it sees shown all the same) and looks one id up.
-- greatest: what runs is sorted, or that index would be read through for it.
create or replace view mill.jobs as
select id, state, verdict, topic, scope, trace_id, run_id, step_id, pool, priority, attempt, reason, instance, created_at, updated_at, run_at, started_at, finished_at, deadline_at, retry_of, due_at
  from (
select j.id, 'RUNNING'::text as state, j.verdict, j.topic, j.scope, j.trace_id, j.run_id, j.step_id,
       coalesce((select p.pool from pgmill.pool_topic p where p.topic = j.topic order by p.place limit 1), 'default') as pool,
       (array['critical', 'interactive', 'batch'])[j.priority + 1] as priority,
       coalesce((select (r.args ->> 'attempt')::int from pgmill.river_job r where r.state = 'running' and r.unique_key = pgmill.job_claim_key(j.id) and r.unique_key is not null
                                  and r.unique_states is not null and pgmill.river_job_state_in_bitmask(r.unique_states, r.state)), j.attempt) as attempt, j.reason,
       coalesce((select r.attempted_by[1] from pgmill.river_job r where r.state = 'running' and r.unique_key = pgmill.job_claim_key(j.id) and r.unique_key is not null
                                  and r.unique_states is not null and pgmill.river_job_state_in_bitmask(r.unique_states, r.state)), j.instance) as instance, j.created_at, greatest(j.updated_at) as updated_at, j.run_at,
       coalesce((select r.attempted_at from pgmill.river_job r where r.state = 'running' and r.unique_key = pgmill.job_claim_key(j.id) and r.unique_key is not null
                                  and r.unique_states is not null and pgmill.river_job_state_in_bitmask(r.unique_states, r.state)), j.started_at) as started_at, j.finished_at, j.deadline_at, j.retry_of, null::timestamptz as due_at,
       j.state = 'PENDING' and j.id = any (array(select r.args ->> 'job' from pgmill.river_job r where r.queue = 'job' and r.state = 'running')) as shown
  from pgmill.job j
union all
select j.id, j.state, pgmill.shown_verdict(j.verdict, j.policy, j.started_at), j.topic, j.scope, j.trace_id, j.run_id, j.step_id,
       coalesce((select p.pool from pgmill.pool_topic p where p.topic = j.topic order by p.place limit 1), 'default'),
       (array['critical', 'interactive', 'batch'])[j.priority + 1],
       j.attempt, j.reason, j.instance, j.created_at, j.updated_at, j.run_at, j.started_at, j.finished_at, j.deadline_at, j.retry_of,
       case when j.state = 'PENDING' then (select w.due_at from pgmill.job_waiting w where w.job = j.id and w.due_at < 'infinity') end,
       not (j.state = 'PENDING' and exists (select from pgmill.river_job r where r.state = 'running' and r.unique_key = pgmill.job_claim_key(j.id) and r.unique_key is not null
                                  and r.unique_states is not null and pgmill.river_job_state_in_bitmask(r.unique_states, r.state)))
  from pgmill.job j) u
 where shown;
comment on view mill.jobs is 'One row a job. RUNNING is what its claim says. Of one that waits, mill.why_not_running says why.';

create or replace view mill.dead_letters as
select job as job_id, topic, scope, state, reason, attempts, died_at, retried_as from pgmill.dead_letter;
comment on view mill.dead_letters is 'Jobs that ended without success and were not cancelled.';

-- All topics that have a step, a pool or a lane. Few, which the planner is told: what it
-- guesses of a young database is thousands, and then it compiles the view (JIT).
create or replace function pgmill.all_topics() returns setof text
language sql stable security definer rows 20
set search_path = pg_catalog, pg_temp
as $$
  select t.name from pgmill.topic t
  union select p.topic from pgmill.pool_topic p
  union select l.topic from (with recursive walk as (
      (select l.topic from pgmill.lane l order by l.topic limit 1)
      union all select (select l.topic from pgmill.lane l where l.topic > w.topic order by l.topic limit 1) from walk w where w.topic is not null)
    select topic from walk where topic is not null) l
$$;

-- Since when the first of a topic's ready jobs waits: it heads one of its lanes, which are
-- walked by their index, whatever is known of the table's size.
create or replace function pgmill.oldest_ready(topic text) returns timestamptz
language sql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
as $$
  with recursive lane as (
    (select l from pgmill.lane l where l.topic = oldest_ready.topic order by l.topic, l.priority, l.demand, l.scope, l.n desc limit 1)
    union all
    select (select y from pgmill.lane y
             where y.topic = (x.l).topic and (y.priority, y.demand, y.scope) > ((x.l).priority, (x.l).demand, (x.l).scope)
             order by y.topic, y.priority, y.demand, y.scope, y.n desc limit 1)
      from lane x where (x.l).topic is not null)
  select min((select w.since from pgmill.job_waiting w
               where w.topic = (x.l).topic and w.priority = (x.l).priority and w.demand = (x.l).demand and w.scope = (x.l).scope
                 and w.due_at is null and w.seq >= (x.l).low
               order by w.seq limit 1))
    from lane x where (x.l).topic is not null
$$;

create or replace view mill.queue_depth as
select t.name as topic, coalesce((select p.pool from pgmill.pool_topic p where p.topic = t.name order by p.place limit 1), 'default') as pool,
       (select count(*) from (select from pgmill.job_waiting w where w.topic = t.name and w.due_at is null limit 10000) x) as ready,
       (select count(*) from pgmill.river_job r where r.queue = 'job' and r.state = 'running' and r.kind = t.name) as running,
       (select count(*) from (select from pgmill.job_waiting w where w.topic = t.name and w.due_at is not null limit 10000) x) as waiting,
       coalesce(round(extract(epoch from now() - pgmill.oldest_ready(t.name))::numeric, 3), 0) as oldest_ready_seconds
  from pgmill.all_topics() t(name);
comment on view mill.queue_depth is 'Of each topic what is ready, what runs and what waits for a time or a limit; ready and waiting count to 10000 and no further.';

create or replace view mill.stuck as
select r.args ->> 'job' as id, 'job'::text as kind, 'host_lost'::text as reason, r.attempted_at as since
  from pgmill.river_job r
 where r.queue = 'job' and r.state = 'running' and not exists (select from pgmill.job_lease l where l.claim = r.id)
   and not exists (select from pgmill.instance i where i.kind = 'worker' and i.id = r.attempted_by[1]
                      and i.deregistered_at is null and now() - i.last_seen < i.ttl + interval '5 seconds')
union all
select r.args ->> 'job', 'job', 'timeout', r.attempted_at
  from pgmill.river_job r
  join pgmill.job j on j.id = r.args ->> 'job'
  left join pgmill.topic t on t.name = j.topic
  left join pgmill.topic_timeout o on o.topic = j.topic
  left join pgmill.job_lease l on l.claim = r.id
 where r.queue = 'job' and r.state = 'running'
   and coalesce(l.over_at, case when l.claim is null then r.attempted_at + coalesce(least(j.max_runtime, coalesce(o.max_runtime, t.max_runtime)), interval '1 hour') end) + interval '1 minute' < now()
union all
select w.job, 'job', 'overdue', w.due_at from pgmill.job_waiting w where w.due_at < now() - interval '30 seconds';
comment on view mill.stuck is 'What should have moved on and has not: nothing, while a host lives.';
