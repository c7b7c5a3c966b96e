-- What became of a source is kept here alone: a preparation's failures are still known
-- when their jobs are cleaned away. Of those that are gone already it stays as it was shown.
-- What an older host finds withdrawn meanwhile is not noted as such, and counts as failed
-- once its job is cleaned away.

-- +goose Up

alter table connectors.preparation_source add column skipped_at timestamptz; -- its job found that it is not to be handed over (any more)
update connectors.preparation_source s set skipped_at = now()
 where s.handed_at is null and not exists (select from mill.jobs j where j.id = s.job and j.state <> 'SUCCEEDED');

-- +goose StatementBegin
create or replace function connectors.read_preparation(operation bigint)
returns table (scope text, instance text, stage text, sources int, handed_off int, failed int, retries int, next_retry_at timestamptz, failure_code text)
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$
  select p.scope, p.instance, case when n.open > 0 and n.begun then 'running' when n.open > 0 then 'queued' when n.failed > 0 then 'failed' else 'done' end,
         p.sources, p.handed_off, n.failed, n.retries, n.next_retry_at, n.failure_code
    from connectors.preparation p
   cross join lateral (
     select count(*) filter (where x.state in ('PENDING', 'RUNNING', 'APPROVAL_REQUIRED'))::int as open, coalesce(bool_or(x.state <> 'PENDING' or x.attempt > 0), false) as begun,
            count(*) filter (where x.failed)::int as failed, coalesce(sum(greatest(x.attempt - 1, 0)), 0)::int as retries,
            min(x.due_at) as next_retry_at, max(coalesce(x.reason, 'connectors.job_gone')) filter (where x.failed) as failure_code
       from (select j.*, coalesce(j.state in ('FAILED', 'TIMEOUT', 'DENIED', 'CANCELLED'), true) and s.handed_at is null and s.skipped_at is null as failed -- else a retry of it was better
               from connectors.preparation_source s left join mill.jobs j on j.id = s.job where s.preparation = p.id) x) n
   where p.id = read_preparation.operation
$$;
-- +goose StatementEnd
