-- One sanitized summary; counts and reason codes only.

-- Who keeps vacuum from cleaning up for longer than pgmill.holder_age (30 s unless the
-- session sets it): snapshots, open writers, prepared transactions and slots, with
-- kind, age and pid or gid. Those of other databases do not keep it from ours. Cursors do not wait for any of them.
create or replace function pgmill.holders() returns table (kind text, who text, seconds bigint)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  age constant interval := coalesce(nullif(current_setting('pgmill.holder_age', true), ''), '30 seconds');
begin
  return query
  select 'transaction', 'pid ' || a.pid, extract(epoch from clock_timestamp() - a.xact_start)::bigint
    from pg_stat_activity a
   where a.xact_start < clock_timestamp() - age and (a.backend_xmin is not null or a.backend_xid is not null)
     and a.backend_type = 'client backend' and a.datname = current_database() and a.pid <> pg_backend_pid()
  union all
  select 'prepared_transaction', 'gid ' || left(p.gid, 60), extract(epoch from clock_timestamp() - p.prepared)::bigint
    from pg_prepared_xacts p where p.database = current_database() and p.prepared < clock_timestamp() - age
  union all
  select 'replication_slot', 'slot ' || s.slot_name, null from pg_replication_slots s where s.xmin is not null or s.catalog_xmin is not null;
end $$;

create or replace view mill.health as
with sub as (
  select count(*) as shards, count(*) filter (where state = 'held') as held, count(*) filter (where state = 'retrying') as retrying,
         count(*) filter (where state = 'degraded') as degraded, count(*) filter (where state = 'suspect') as suspect,
         count(*) filter (where state = 'paused') as paused, count(*) filter (where state = 'expired') as expired,
         count(*) filter (where blocked_by = 'no_live_host') as no_live_host,
         count(*) filter (where reason = 'owner_matrix_incomplete') as incomplete,
         coalesce(sum(lag_events), 0) as lag_events, coalesce(max(lag_seconds), 0) as lag_seconds
    from mill.subscriptions
), inst as (
  select count(*) filter (where live) as live, count(*) as known, coalesce(sum(claims) filter (where not live), 0) as stranded,
         bool_or(live and 'listen_unavailable' = any (p.reasons)) as deaf
    from mill.instances i join pgmill.instance p on p.kind = i.kind and p.id = i.id
   where i.kind = 'worker'
), hold as (
  select count(*) as n, coalesce(max(seconds), 0) as oldest, (array_agg(kind || ' ' || who order by seconds desc nulls last))[1] as who from pgmill.holders()
), sched as materialized (
  -- Overdue by more than the time from the last fire to this one, and by a minute if
  -- that is longer: a host that lives fires within a second. Index: schedule_due.
  select (select count(*) from pgmill.function u where u.kind = 'schedule') as known,
         (select count(*) from pgmill.schedule d join pgmill.function u on u.name = d.name and u.kind = 'schedule'
           where d.paused_at is null and d.next_at < now() - interval '5 seconds'
             and d.next_at < now() - least(coalesce(d.next_at - d.last_at, interval '1 minute'), interval '1 minute')) as overdue,
         array(select distinct d.reason from pgmill.schedule d join pgmill.function u on u.name = d.name and u.kind = 'schedule' where d.reason is not null order by 1) as broken,
         (select count(*) from pgmill.schedule d join pgmill.function u on u.name = d.name and u.kind = 'schedule' where d.paused_at is not null) as paused,
         (select count(distinct s.subscription) from pgmill.shard s join pgmill.function u on u.name = s.subscription and u.kind = 'schedule'
           where s.held_at is not null) as held
), job as (
  -- Dead letters are a job's own doing; what is due and does not move is the hosts'. By the
  -- indexes dead_letter_died and job_waiting_due.
  select (select count(*) from (select from pgmill.dead_letter d where d.died_at > now() - interval '1 hour' order by d.died_at desc limit 10000) x) as dead,
         (select count(*) from (select from pgmill.job_waiting w where w.due_at < now() - interval '30 seconds' order by w.due_at limit 1000) x) as overdue
), net as (
  select exists (select from pgmill.log_default) as used
), bell as (
  select pg_notification_queue_usage() as used
), miss as (
  -- The auditor: committed for a while and still without a position. A subquery
  -- rather than an anti-join, which would be planned as a scan of the log.
  select count(*) as n from (select e.id, e.emitted_at from pgmill.event e order by e.id desc limit 1000) e
   where e.emitted_at < now() - interval '10 seconds' and (select l.pos from pgmill.log l where l.event_id = e.id limit 1) is null
)
select 'subscriptions'::text as component,
       case when held + degraded + expired + no_live_host + incomplete > 0 then 'degraded' else 'ok' end as status,
       array_remove(array[case when held > 0 then 'held' end, case when retrying > 0 then 'retrying' end, case when degraded > 0 then 'parked' end,
                          case when expired > 0 then 'expired' end, case when no_live_host > 0 then 'no_live_host' end,
                          case when incomplete > 0 then 'owner_matrix_incomplete' end], null) as reasons,
       jsonb_build_object('shards', shards, 'held', held, 'retrying', retrying, 'degraded', degraded, 'suspect', suspect, 'paused', paused,
                          'lag_events', lag_events, 'lag_seconds', lag_seconds) as counts,
       now() as checked_at
  from sub
union all
select 'schedules', case when overdue + held + cardinality(broken) > 0 then 'degraded' else 'ok' end,
       array_remove(array[case when overdue > 0 then 'overdue' end, case when held > 0 then 'held' end], null) || broken,
       jsonb_build_object('schedules', known, 'overdue', overdue, 'held', held, 'paused', paused), now()
  from sched
union all
select 'jobs', case when overdue > 0 then 'degraded' else 'ok' end,
       array_remove(array[case when overdue > 0 then 'overdue' end, case when dead > 0 then 'dead_letters' end], null),
       jsonb_build_object('dead_letters_last_hour', dead, 'overdue', overdue), now()
  from job
union all
select 'workers', case when live = 0 or stranded > 0 then 'degraded' else 'ok' end,
       array_remove(array[case when live = 0 then 'no_live_host' end, case when stranded > 0 then 'host_lost' end, case when deaf then 'listen_unavailable' end], null),
       jsonb_build_object('live', live, 'known', known, 'stranded_claims', stranded), now()
  from inst
union all
select 'log', case when net.used or miss.n > 0 then 'degraded' else 'ok' end,
       array_remove(array[case when net.used then 'default_partition_used' end, case when miss.n > 0 then 'positions_late' end], null),
       jsonb_build_object('head', (select k.last from pgmill.step k order by k.k desc limit 1), 'without_position', miss.n), now()
  from net, miss
union all
select 'vacuum', case when hold.n > 0 then 'degraded' else 'ok' end,
       case when hold.n > 0 then array['old_snapshot'] else '{}' end,
       jsonb_build_object('holders', hold.n, 'oldest_seconds', hold.oldest, 'holder', hold.who), now()
  from hold
union all
select 'bell', case when used >= 0.1 then 'degraded' else 'ok' end,
       case when used >= 0.1 then array['notify_queue_filling'] else '{}' end,
       jsonb_build_object('queue_usage', round(used::numeric, 3)), now()
  from bell;
comment on view mill.health is 'Status and reason codes by component: subscriptions, schedules, jobs, workers, log, vacuum, bell.';
