create or replace view mill.modules as
select m.name, pgmill.module_role(m.name) as role, m.versions[cardinality(m.versions)] as version, m.migrated_at,
       (select count(distinct i.id) from pgmill.function f
          join pgmill.instance_function x on x.function = f.name
          join pgmill.instance i on i.kind = 'worker' and i.id = x.instance
         where f.module = m.name and pgmill.is_live(i.last_seen, i.ttl, i.deregistered_at)) as live_hosts
  from pgmill.module m;
comment on view mill.modules is 'Every module that has tables here: its role, its newest migration, and how many live hosts run functions of it.';
