-- Who calls, and whose rows that one may see. API statements run as pgmill_api, with
-- the settings pgmill.scope and pgmill.actor made in the same batch. A definer function
-- changes the user but not the setting role, so the whole contract asks it here.

-- May the caller see rows of this scope? Anyone but the API: yes. The API: those of the
-- key's scope, '*' is all; without the setting none (fail closed).
create or replace function pgmill.in_scope(scope text) returns boolean
language sql stable parallel safe
as $$
  select current_setting('role') <> 'pgmill_api' or coalesce(current_setting('pgmill.scope', true) in (scope, '*'), false)
$$;

-- The name for the audit.
create or replace function pgmill.actor() returns text
language sql stable
as $$
  select case when current_setting('role') = 'pgmill_api' then coalesce(nullif(current_setting('pgmill.actor', true), ''), 'api') else 'db:' || session_user end
$$;
