-- Sources of connectors that are selected for AI, and their bulk preparation: one
-- operation, one job a source. What is kept is where a source is and whether it was
-- handed over; its content never comes here.

-- +goose Up

create table connectors.preparation (
  id         bigint generated always as identity primary key,
  instance   text        not null references connectors.instance,
  scope      text        not null,
  sources    int         not null,
  handed_off int         not null default 0,
  since      timestamptz not null default now()
);
create index preparation_instance on connectors.preparation (instance, id);

-- handed_at: it was handed over as it is now; one that has changed is selected again.
create table connectors.source (
  id        bigint generated always as identity primary key,
  instance  text    not null references connectors.instance,
  ref       text    not null check (ref ~ '^[A-Za-z0-9_.:/@#+=~-]{1,120}$'),
  selected  boolean not null,
  handed_at timestamptz,
  job       text,                                  -- the last one
  unique (instance, ref)
);

create table connectors.preparation_source (
  preparation bigint not null references connectors.preparation,
  source      bigint not null references connectors.source,
  job         text   not null,
  handed_at   timestamptz,                         -- null after its job: it was not selected any more
  primary key (preparation, source)
);

create view connectors.preparations as
select id, instance, scope, sources, handed_off, since from connectors.preparation;
comment on view connectors.preparations is 'Bulk preparations for AI: how many sources, and how many were handed over. That says nothing of extraction, indexing or answers.';

-- +goose StatementBegin
create function connectors.select_source(instance text, ref text, selected boolean default true) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
  id bigint;
begin
  if not exists (select from connectors.instance i where i.id = select_source.instance) then
    raise exception using errcode = 'MI404', message = format('no connector instance %s: add it first', quote_literal(instance));
  end if;
  insert into connectors.source as s (instance, ref, selected) values (select_source.instance, select_source.ref, select_source.selected)
  on conflict on constraint source_instance_ref_key do update set selected = excluded.selected, handed_at = null
  returning s.id into id;
  return id;
end $$;
-- +goose StatementEnd
comment on function connectors.select_source(text, text, boolean) is 'Selects a source of an instance for AI, or not any more; one that has changed is selected again.';

-- +goose StatementBegin
create function connectors.prepare_for_ai(instance text, refs text[] default null) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
  of_scope text;
  ids bigint[];
  operation bigint;
begin
  select i.scope into of_scope from connectors.instance i where i.id = prepare_for_ai.instance for update; -- preparations of one instance take turns
  if not found then
    raise exception using errcode = 'MI404', message = format('no connector instance %s: add it first', quote_literal(instance));
  end if;
  select array_agg(e.id) into ids
    from (select s.id from connectors.source s
           where s.instance = prepare_for_ai.instance and s.selected and s.handed_at is null and (refs is null or s.ref = any (refs))
             and not exists (select from mill.jobs j where j.id = s.job and j.state in ('PENDING', 'RUNNING', 'APPROVAL_REQUIRED'))
           order by s.id limit 10000) e;
  if ids is null then
    return null; -- nothing is eligible
  end if;
  insert into connectors.preparation (instance, scope, sources) values (prepare_for_ai.instance, of_scope, cardinality(ids)) returning id into operation;
  insert into connectors.preparation_source (preparation, source, job)
  select operation, e.id, j.job_id
    from unnest(ids) with ordinality e(id, n)
    join rows from (mill.submit_jobs((select jsonb_agg(jsonb_build_object('topic', 'job.connectors.prepare', 'scope', of_scope, 'priority', 'batch', 'trace_id', 'connectors.prepare-' || operation,
                                                                          'input', jsonb_build_object('preparation', operation, 'source', i.id)) order by i.n)
                                        from unnest(ids) with ordinality i(id, n)))) with ordinality j(job_id, outcome, reason, n) on j.n = e.n;
  update connectors.source s set job = p.job from connectors.preparation_source p where p.preparation = operation and s.id = p.source;
  return operation;
end $$;
-- +goose StatementEnd
comment on function connectors.prepare_for_ai(text, text[]) is 'Hands the selected sources of an instance (or those of them that are named) over for AI, one job each, at most 10000 at once; answers the operation, null if none is eligible.';

-- +goose StatementBegin
create function connectors.read_preparation(operation bigint)
returns table (scope text, instance text, stage text, sources int, handed_off int, failed int, retries int, next_retry_at timestamptz, failure_code text)
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$
  select p.scope, p.instance, case when n.open > 0 and n.begun then 'running' when n.open > 0 then 'queued' when n.failed > 0 then 'failed' else 'done' end,
         p.sources, p.handed_off, n.failed, n.retries, n.next_retry_at, n.failure_code
    from connectors.preparation p
   cross join lateral (
     select count(*) filter (where x.state in ('PENDING', 'RUNNING', 'APPROVAL_REQUIRED'))::int as open, coalesce(bool_or(x.state <> 'PENDING' or x.attempt > 0), false) as begun,
            count(*) filter (where x.failed)::int as failed, coalesce(sum(greatest(x.attempt - 1, 0)), 0)::int as retries,
            min(x.due_at) as next_retry_at, max(x.reason) filter (where x.failed) as failure_code
       from (select j.*, j.state in ('FAILED', 'TIMEOUT', 'DENIED', 'CANCELLED') and s.handed_at is null as failed -- else a retry of it was better
               from connectors.preparation_source s join mill.jobs j on j.id = s.job where s.preparation = p.id) x) n
   where p.id = read_preparation.operation
$$;
-- +goose StatementEnd
comment on function connectors.read_preparation(bigint) is 'How far a preparation is: queued, running, failed (in part) or done, with counts, retries and a reason code.';
