-- What people, programs and the CLI read. No payload, no secret, no error text.

create or replace view mill.events as
select l.pos, e.id, e.type, e.target, e.key, e.scope, e.trace_id, e.emitted_at, l.at as positioned_at
  from pgmill.event e
  left join pgmill.log l on l.event_id = e.id;
comment on view mill.events is 'Every committed event; pos is null until it has its place in the order.';

-- One row each of step and archive is asked for as a value: joined, a young database's
-- guess of how many rows they have makes the plan look so dear that it is compiled (JIT),
-- which takes seconds. offset 0: the position is looked up once, not at each mention.
create or replace view mill.subscriptions as
select s.subscription as name,
       s.shard,
       case when d.reason is not null then 'paused'
            when c.pos < h.floor then 'expired'
            when f.paused_at is not null then 'paused'
            when s.held_at is not null then 'held'
            when s.failing_pos is not null then 'retrying'
            when s.suspect_left > 0 then 'suspect'
            when p.parked then 'degraded'
            else 'running' end as state,
       c.pos as position,
       h.head,
       h.head - c.pos as lag_events,
       coalesce(round(extract(epoch from clock_timestamp() - (select l.at from pgmill.log l where l.pos > c.pos order by l.pos limit 1))::numeric, 3), 0)
         * (c.pos < h.head)::int as lag_seconds,
       s.attempts,
       coalesce(d.reason, s.reason, f.pause_reason) as reason,
       s.next_retry_at,
       j.instance,
       case when d.reason is not null then d.reason
            when f.paused_at is not null then 'paused'
            when s.failing_pos is not null then 'event at ' || s.failing_pos
            when (c.pos < h.head or r.stop_at is not null) and j.instance is null and not live.any then 'no_live_host'
            when c.pos >= r.stop_at then 'reshard' end as blocked_by,
       r.stop_at as reshard_at
  from pgmill.subscription f
  join pgmill.function d on d.name = f.name
  join pgmill.shard s on s.subscription = f.name
 cross join lateral (select (select k.last from pgmill.step k order by k.k desc limit 1) as head, (select a.upto from pgmill.archive a) as floor) h
 cross join lateral (select case when f.dormant then h.head -- nothing since its cursor is for it
                                 else (select x.pos from pgmill.cursor x where x.subscription = s.subscription and x.shard = s.shard order by x.n desc limit 1) end as pos
                     offset 0) c
 cross join lateral (select (select r.stop_at from pgmill.reshard r where r.subscription = f.name) as stop_at offset 0) r
 cross join lateral (select min(k.key) is not null as parked from pgmill.parked_key k where k.subscription = s.subscription and k.shard = s.shard) p -- min: by the index
 cross join lateral (select exists (select from pgmill.instance_function i join pgmill.instance l on l.kind = 'worker' and l.id = i.instance
                                     where i.function = f.name and pgmill.is_live(l.last_seen, l.ttl, l.deregistered_at)) as any) live
  left join lateral (select j.attempted_by[array_upper(j.attempted_by, 1)] as instance from pgmill.river_job j
                      where j.unique_key = pgmill.claim_key(s.subscription, s.shard) and j.unique_key is not null
                        and j.unique_states is not null and pgmill.river_job_state_in_bitmask(j.unique_states, j.state)
                        and j.state = 'running') j on true;
comment on view mill.subscriptions is 'One row a shard: how far, how far behind, and what it waits for. Lag is head minus position; reshard_at is where its shards give way to others, null if they do not.';

create or replace view mill.parked_events as
select subscription, shard, key, pos, event_id, reason, attempts, parked_at from pgmill.parked_event;
comment on view mill.parked_events is 'Events set aside after their last attempt; later events of the same key wait in the log.';

create or replace view mill.instances as
select i.id, i.kind, i.contract, i.version, i.profile,
       pgmill.is_live(i.last_seen, i.ttl, i.deregistered_at) as live,
       i.last_seen, extract(epoch from i.ttl)::int as ttl_secs,
       coalesce(c.n, 0) as claims, i.pools, i.labels
  from pgmill.instance i
  left join (select j.attempted_by[array_upper(j.attempted_by, 1)] as id, count(*) as n from pgmill.river_job j where j.state = 'running' group by 1) c on c.id = i.id;
comment on view mill.instances is 'Every process that registered; live is the verdict of this moment, by the database clock. pools: null is none named.';

create or replace view mill.functions as
select d.name, d.kind, d.listens,
       (select count(*) from pgmill.instance_function f join pgmill.instance i on i.kind = 'worker' and i.id = f.instance
         where f.function = d.name and pgmill.is_live(i.last_seen, i.ttl, i.deregistered_at)) as live_hosts
  from pgmill.function d;
comment on view mill.functions is 'Every function a host has ever registered and how many live hosts have it now.';

-- The state of the last fire time: done, pending (not begun, or being handled),
-- retrying, held, parked; or missed or skipped: left out.
create or replace view mill.schedules as
select d.name, d.cron, d.zone,
       case when d.paused_at is null then d.next_at end as next_at,
       d.last_at,
       case when d.last_at is null then null
            when d.last_left = 'missed' then 'missed'
            when d.last_left = 'overlap' then 'skipped'
            when p.reason is not null then 'parked'
            when f.dormant or x.done then 'done'
            when b.state is not null then b.state
            else 'pending' end as last_state,
       case when d.reason is not null then d.reason
            when d.paused_at is not null then 'paused'
            when d.next_at < now() - interval '5 seconds' and not live.any then 'no_live_host'
            when d.last_left is not null then d.last_left
            when p.reason is not null then p.reason
            when not f.dormant and not x.done then coalesce(b.reason, case when f.paused_at is not null then 'paused' when not live.any then 'no_live_host' end) end as reason
  from pgmill.schedule d
  join pgmill.function u on u.name = d.name and u.kind in ('schedule', 'cleanup')
  join pgmill.subscription f on f.name = d.name
 cross join lateral (select f.dormant or d.last_event is null -- as pgmill.ticks_done
                         or not exists (select from pgmill.event e where e.id = d.last_event)
                         or coalesce((select l.pos from pgmill.log l where l.event_id = d.last_event limit 1)
                                     <= (select min(c.pos) from pgmill.shard h
                                          cross join lateral (select x.pos from pgmill.cursor x where x.subscription = f.name and x.shard = h.shard order by x.n desc limit 1) c
                                          where h.subscription = f.name and h.shard < f.shards), false) as done) x
  left join lateral (select exists (select from pgmill.instance_function i join pgmill.instance l on l.kind = 'worker' and l.id = i.instance
                                     where i.function = d.name and pgmill.is_live(l.last_seen, l.ttl, l.deregistered_at)) as any) live
         on d.next_at < now() - interval '5 seconds' or not f.dormant
  left join lateral (select e.reason from pgmill.parked_event e where e.subscription = d.name and e.event_id = d.last_event limit 1) p on true
  left join lateral (select case when s.held_at is not null then 'held' when s.failing_pos is not null then 'retrying' end as state, s.reason
                       from pgmill.shard s where s.subscription = d.name and s.failing_pos is not null order by s.failing_pos desc limit 1) b on true;
comment on view mill.schedules is 'One row a schedule: when it fires next, and what became of the last fire time. next_at is null while it does not fire.';

create or replace view mill.retention_preview as
select class, scope, rows, oldest, blocked_by from pgmill.preview_retention();
comment on view mill.retention_preview is 'What each clean-up would delete now, by class and scope, and what keeps more of it: exact up to a thousand old rows, of an organization fifty, an estimate above, and of organizations the first twenty; null for a statement of its author''s. Class events: how many events no reader needs any more, which host events archive may take.';

create or replace view mill.audit as
select at, actor, action, subject, reason from pgmill.audit;
comment on view mill.audit is 'Who did what to the runtime.';

create or replace view mill.why_not_running as
select s.name || '/' || s.shard as id,
       'subscription'::text as kind,
       case when d.reason is not null then d.reason
            when s.state in ('paused', 'expired') then s.state
            when s.state = 'held' then 'held'
            when s.state = 'retrying' then coalesce(s.reason, 'handler_error')
            when s.blocked_by = 'no_live_host' then 'no_live_host'
            else 'claimable' end as reason,
       case when s.state = 'paused' then coalesce(f.paused_at, d.declared_at)
            when s.state = 'held' then x.held_at
            when s.state = 'retrying' then x.failed_at
            else (select l.at from pgmill.log l where l.pos > s.position order by l.pos limit 1) end as since,
       case when s.state = 'retrying' then 'attempt ' || s.attempts || ' of the event at ' || x.failing_pos || ', next at ' || coalesce(s.next_retry_at::text, 'once claimed')
            when s.state = 'held' then 'the event at ' || x.failing_pos || ' failed ' || s.attempts || ' times: host subscription resume, park or drop'
            when s.state = 'paused' and d.reason is not null then s.lag_events || ' events wait: mend the declaration and start a host'
            when s.state = 'paused' then s.lag_events || ' events wait: host subscription resume'
            when s.blocked_by = 'no_live_host' then s.lag_events || ' events wait: no live host has this function'
            else s.lag_events || ' events wait for a host to claim the shard' end as detail
  from mill.subscriptions s
  join pgmill.subscription f on f.name = s.name
  join pgmill.function d on d.name = s.name
  join pgmill.shard x on x.subscription = s.name and x.shard = s.shard
 where (s.lag_events > 0 or s.state in ('held', 'retrying')) and s.instance is null
union all
select p.subscription || '/' || p.shard || '@' || p.pos, 'parked_event', p.reason, p.parked_at,
       'key ' || p.key || ' is parked: host subscription unpark or drop'
  from pgmill.parked_event p
union all
select s.name, 'schedule', s.reason, coalesce(d.paused_at, d.next_at, u.declared_at),
       case s.reason when 'no_live_host' then 'due since ' || d.next_at || ': no live host has this function'
                     when 'paused' then 'its fire times are left out: host schedule resume'
                     else 'it does not fire: mend the declaration and start a host' end
  from mill.schedules s
  join pgmill.schedule d on d.name = s.name
  join pgmill.function u on u.name = s.name
 where d.reason is not null or d.next_at <= now() - interval '5 seconds' and (d.paused_at is not null or s.reason = 'no_live_host')
union all
select w.job, 'job', pgmill.wait_code(w.blocked, w.due_at, w.reason, w.since, l.reason), w.since,
       'attempt ' || w.attempt || ' of ' || w.topic || case when w.due_at > now() and w.due_at < 'infinity' then ', not before ' || w.due_at else '' end
  from pgmill.job_waiting w
 cross join lateral (select pgmill.lane_reason(w.topic, w.demand, w.scope) as reason offset 0) l; -- offset 0: kept apart, it is asked once a lane
comment on view mill.why_not_running is 'Exactly one row for everything that waits, also with no host alive.';
