-- One signal an event: (subscription, event_id) is what makes handling one again
-- nothing new. The newest of an instance is how it stands.

-- +goose Up

create table posture.signal (
  subscription text        not null,
  event_id     bigint      not null,
  connector    text        not null,
  instance     text        not null,
  signal       text        not null check (signal in ('met', 'at_risk', 'not_met')),
  record       bigint      not null, -- the report, with package connectors; rises per instance
  observed_at  timestamptz not null,
  scope        text        not null,
  primary key (subscription, event_id)
);
create index signal_instance on posture.signal (instance, record desc);

create view posture.signals as
select event_id, connector, instance, signal, observed_at, scope from posture.signal;
comment on view posture.signals is 'Each signal that a connector instance gave: met, at_risk or not_met.';

create view posture.connector_instances as
select distinct on (instance) instance, connector, signal, observed_at, scope
  from posture.signal
 order by instance, record desc;
comment on view posture.connector_instances is 'How each connector instance stands: its newest signal.';
