-- The seam for other modules: how the instances of one organization stand. Its index
-- serves one scope; a host of the version before goes by the old one and the views.

-- +goose NO TRANSACTION
-- +goose Up

create index concurrently if not exists signal_scope on posture.signal (scope, instance, record desc);

-- +goose StatementBegin
create or replace function posture.read_signals(scope text) returns table (connector text, instance text, signal text, observed_at timestamptz)
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$
  select distinct on (s.instance) s.connector, s.instance, s.signal, s.observed_at
    from posture.signal s
   where s.scope = read_signals.scope
   order by s.instance, s.record desc
$$;
-- +goose StatementEnd
comment on function posture.read_signals(text) is 'What other modules may know of the posture of one scope: the newest signal of each of its connector instances.';
