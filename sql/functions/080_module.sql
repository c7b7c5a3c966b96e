-- A module: a schema of its name, the role mill_module_<name> that its handlers run as,
-- and what hosts ask before they start. Two groups are around those roles: mill_module
-- may use the seams of every module, and each module's role is a member; pgmill_modules
-- may become every module's role without having its rights before (it does not
-- inherit), and pgmill_runtime is a member. What needs the owner is done by the
-- migrator, with its own rights.

create or replace function pgmill.module_role(module text) returns text
language sql immutable parallel safe
as $$ select 'mill_module_' || module $$;

-- What is missing of a module's role and its memberships, as statements; the migrator
-- runs them, or somebody who may create roles.
create or replace function pgmill.module_role_lacks(module text) returns setof text
language plpgsql stable
as $$
declare
  role constant text := pgmill.module_role(module);
begin
  if to_regrole(role) is null then
    return next format('create role %I nologin', role);
  end if;
  return query
  select format('grant %I to %I', g.granted, g.member)
    from (values ('mill_module', role), ('mill_emitter', role), ('mill_reader', role), (role, 'pgmill_modules')) g(granted, member)
   where not exists (select from pg_auth_members a join pg_roles r on r.oid = a.roleid join pg_roles m on m.oid = a.member
                      where r.rolname = g.granted and m.rolname = g.member);
  if not pgmill.may_become(role) then
    return next format('grant %I to %I', role, current_user);
  end if;
end $$;

-- Whether the current user could set its role to this one; false if there is none.
create or replace function pgmill.may_become(role text) returns boolean
language plpgsql stable
as $$
begin
  if to_regrole(role) is null then
    return false;
  end if;
  return pg_has_role(role, case when current_setting('server_version_num')::int >= 160000 then 'SET' else 'MEMBER' end);
end $$;

-- Makes the schema and notes that it is a module's. A schema that is there already is
-- taken as it is.
create or replace function pgmill.open_module(module text) returns void
language plpgsql volatile
as $$
begin
  if quote_ident(module) <> module then
    raise exception using errcode = 'MI001', message = format('module %s: SQL reserves this word; choose another name', module);
  end if;
  if to_regnamespace(module) is null then
    execute format('create schema %I', module);
  end if;
  insert into pgmill.module (name) values (module) on conflict do nothing;
end $$;

-- Gives the rights that follow from what is in the schema, after its migrations: tables
-- are the module's, views are for reading, definer functions are its seams and run with
-- its rights. Done each time, so that a restored database gets them back.
create or replace function pgmill.grant_module(module text) returns void
language plpgsql volatile
as $$
declare
  role constant text := pgmill.module_role(module);
  r record;
  done bigint[];
begin
  execute format('grant usage on schema %I to %I, mill_module, mill_reader', module, role);
  for r in select c.oid::regclass as name, c.relkind as kind
             from pg_class c where c.relnamespace = to_regnamespace(module) and not starts_with(c.relname, 'goose_db_version') loop
    if r.kind in ('r', 'p', 'f') then
      execute format('grant select, insert, update, delete on %s to %I', r.name, role);
    elsif r.kind = 'S' then
      execute format('grant usage, select on sequence %s to %I', r.name, role);
    elsif r.kind in ('v', 'm') then
      execute format('grant select on %s to %I, mill_module, mill_reader', r.name, role);
    end if;
  end loop;
  for r in select p.oid::regprocedure as name, p.proowner <> to_regrole(role) as others,
                  exists (select from unnest(p.proconfig) c where starts_with(c, 'search_path=')) as fixed
             from pg_proc p where p.pronamespace = to_regnamespace(module) and p.prosecdef
              and not exists (select from pg_depend d where d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.deptype = 'e') loop
    if not r.fixed then
      raise exception using errcode = 'MI001', message = format('module %s: %s is security definer and must fix its search_path: set search_path = pg_catalog, pg_temp', module, r.name);
    end if;
    if r.others then
      execute format('grant create on schema %I to %I', module, role); -- a new owner needs it
      execute format('alter routine %s owner to %I', r.name, role);
      execute format('revoke create on schema %I from %I', module, role);
    end if;
    execute format('revoke all on routine %s from public', r.name);
    execute format('grant execute on routine %s to mill_module', r.name);
  end loop;
  execute format('select array(select version_id from %I.goose_db_version where is_applied and version_id > 0 order by 1)', module) into done;
  update pgmill.module m set versions = done, migrated_at = now() where m.name = module and m.versions is distinct from done;
end $$;

-- What keeps a host that needs these migrations of a module from running it: migration,
-- or grant (of pgmill_modules); null: nothing.
create or replace function pgmill.module_lacks(module text, wants bigint[]) returns text
language plpgsql stable
as $$
declare
  role constant text := pgmill.module_role(module);
begin
  if to_regrole(role) is null or to_regnamespace(module) is null
     or not exists (select from pgmill.module m where m.name = module and m.versions @> wants)
     or not has_schema_privilege(role, module, 'usage') then
    return 'migration';
  elsif not pgmill.may_become(role) then
    return 'grant';
  end if;
  return null;
end $$;
