-- Connectors, their instances, reports on their health, and the health of a connector
-- as a whole. detail is what a report says in words: it stays in this table.

-- +goose Up

create table connectors.connector (
  id    text primary key check (id ~ '^[a-z0-9_-]{1,64}$'),
  since timestamptz not null default now()
);

create table connectors.instance (
  id        text primary key check (id ~ '^[A-Za-z0-9_.:/-]{1,120}$'),
  connector text not null references connectors.connector,
  scope     text not null default 'install',
  status    text check (status in ('healthy', 'degraded', 'failing')), -- as last reported; null: never
  reason    text,
  since     timestamptz,
  record    bigint,
  added_at  timestamptz not null default now()
);
create index instance_connector on connectors.instance (connector);

create table connectors.health_record (
  id       bigint generated always as identity primary key,
  instance text        not null references connectors.instance,
  status   text        not null check (status in ('healthy', 'degraded', 'failing')),
  reason   text        check (reason ~ '^[a-z0-9_.]{1,64}$'),
  detail   text        check (length(detail) <= 2000),
  at       timestamptz not null default clock_timestamp()
);
create index health_record_instance on connectors.health_record (instance, id);

create table connectors.health (
  connector text primary key references connectors.connector,
  status    text        not null,
  healthy   int         not null,
  degraded  int         not null,
  failing   int         not null,
  since     timestamptz not null,
  event_id  bigint      not null -- the event that it was last counted for
);

create view connectors.instances as
select id, connector, scope, status, reason, since from connectors.instance;
comment on view connectors.instances is 'Connector instances and their health as last reported; what a report says in words is not shown.';

create view connectors.connector_health as
select connector, status, healthy, degraded, failing, since from connectors.health;
comment on view connectors.connector_health is 'How healthy each connector is: as its worst instance, and how many are how.';

-- +goose StatementBegin
create function connectors.add(connector text, instance text, scope text default 'install') returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
  insert into connectors.connector (id) values (add.connector) on conflict do nothing;
  insert into connectors.instance (id, connector, scope) values (add.instance, add.connector, add.scope) on conflict (id) do nothing;
  if (select i.connector from connectors.instance i where i.id = add.instance) <> add.connector then
    raise exception using errcode = 'MI409', message = format('instance %s is another connector''s', quote_literal(instance));
  end if;
end $$;
-- +goose StatementEnd
comment on function connectors.add(text, text, text) is 'Makes an instance of a connector known; again is nothing new.';

-- +goose StatementBegin
create function connectors.record_health(instance text, status text, reason text default null, detail text default null) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
  i connectors.instance;
  new_id bigint;
begin
  select x.* into i from connectors.instance x where x.id = record_health.instance for update; -- reports on one instance take turns
  if not found then
    raise exception using errcode = 'MI404', message = format('no connector instance %s: add it first', quote_literal(instance));
  end if;
  insert into connectors.health_record (instance, status, reason, detail)
  values (record_health.instance, record_health.status, record_health.reason, record_health.detail)
  returning id into new_id;
  if i.status is distinct from record_health.status or i.reason is distinct from record_health.reason then
    update connectors.instance x
       set status = record_health.status, reason = record_health.reason, record = new_id, since = now()
     where x.id = i.id;
    perform mill.emit('connector.health.changed', i.connector || '/' || i.id, i.connector || '/' || i.id,
                      jsonb_build_object('record', new_id, 'connector', i.connector, 'instance', i.id), i.scope);
  end if;
  return new_id;
end $$;
-- +goose StatementEnd
comment on function connectors.record_health(text, text, text, text) is
  'Notes a report on an instance''s health and answers its id; emits connector.health.changed if status or reason are other than before.';

-- +goose StatementBegin
create function connectors.read_health(record bigint) returns table (instance text, connector text, status text, at timestamptz)
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$
  select r.instance, i.connector, r.status, r.at
    from connectors.health_record r join connectors.instance i on i.id = r.instance
   where r.id = read_health.record
$$;
-- +goose StatementEnd
comment on function connectors.read_health(bigint) is 'What other modules may know of a report: which instance, how healthy, when.';
