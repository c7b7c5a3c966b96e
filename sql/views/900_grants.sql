-- Who may do what. The runtime role has DML only; readers see views only. Roles are
-- the cluster's, and a dump of the database does not hold them: here, so that a
-- migration of a restored database brings them back with their grants (platform/pg).
do $$
declare
  role text;
begin
  foreach role in array array['mill_reader', 'mill_emitter', 'mill_operator', 'mill_approver', 'mill_worker',
                              'pgmill_runtime', 'pgmill_api', 'pgmill_cleanup', 'mill_cleaner', 'mill_module', 'pgmill_modules'] loop
    if not exists (select from pg_roles where rolname = role) then
      begin
        execute format('create role %I nologin %s', role, case when role = 'pgmill_modules' then 'noinherit' end);
      exception
        when duplicate_object or unique_violation then null; -- another database of this cluster was faster
      end;
    end if;
  end loop;
  if not exists (select from pg_auth_members where roleid = 'pgmill_modules'::regrole and member = 'pgmill_runtime'::regrole) then
    begin
      grant pgmill_modules to pgmill_runtime;
    exception
      when unique_violation then null;
    end;
  end if;
end $$;
do $$
declare
  f regprocedure;
begin
  for f in select p.oid::regprocedure from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname in ('mill', 'pgmill') loop
    execute format('revoke execute on routine %s from public, pgmill_api', f);
  end loop;
end $$;
grant usage on schema mill to mill_reader, mill_emitter, mill_operator, mill_approver, mill_worker, pgmill_runtime, pgmill_api, pgmill_cleanup, mill_cleaner, mill_module;
grant select on all tables in schema mill to mill_reader, mill_operator, pgmill_runtime;
revoke all on all tables in schema mill from pgmill_api; -- views show all scopes
revoke all on mill.outbox from mill_reader, mill_operator, pgmill_runtime; -- it shows data
grant select (id), insert (scope, type, target, key, trace_id, data) on mill.outbox to mill_emitter, mill_operator, pgmill_runtime;
revoke all on all sequences in schema pgmill from pgmill_api;
grant usage on sequence pgmill.event_id to mill_emitter, mill_operator; -- the default of its id
grant select on sequence pgmill.bell to mill_emitter, mill_operator;
grant execute on function pgmill.ring(), pgmill.suspicious(jsonb), pgmill.trace() to mill_emitter, mill_operator;
grant update on sequence pgmill.bell to pgmill_runtime;
grant execute on function mill.emit(text, text, text, jsonb, text, jsonb), mill.emit_many(jsonb) to mill_emitter, mill_operator, pgmill_runtime;
grant execute on function
  mill.pause_subscription(text, text), mill.resume_subscription(text, text), mill.hold_subscription(text, int, text),
  mill.park_subscription(text, int, text), mill.drop_event(text, int, bigint, text), mill.unpark(text, text, text),
  mill.move_subscription(text, text, text), mill.replay_subscription(text, text, text), mill.reshard_subscription(text, int, text),
  mill.pause_schedule(text, text), mill.resume_schedule(text, text), mill.trigger_schedule(text, text),
  mill.retry_dead_letter(text, text), mill.delete_dead_letter(text, text), mill.limit_scope(text, int, float8, text), mill.set_pools(jsonb, text), mill.set_timeouts(jsonb, text) to mill_operator, pgmill_runtime;
grant execute on function mill.submit_job(text, jsonb, jsonb), mill.submit_jobs(jsonb) to mill_emitter, mill_operator, pgmill_runtime, pgmill_api;
grant execute on function mill.cancel(text, text) to mill_operator, pgmill_runtime, pgmill_api;
grant execute on function mill.claim_jobs(text, text[], int, int, text[], jsonb), mill.renew_jobs(text[], text[]), mill.progress_job(text, text, int, text),
  mill.complete_job(text, text, jsonb), mill.fail_job(text, text, text, boolean), mill.release_job(text, text), mill.late_job(text, text) to mill_worker, mill_operator, pgmill_runtime, pgmill_api;
grant execute on function mill.put_blob(bytea, jsonb) to mill_emitter, mill_operator, mill_module, pgmill_runtime;
grant execute on function mill.blob(text), mill.read_blob(text, bigint, int) to mill_worker, mill_operator, mill_module, pgmill_runtime, pgmill_api;
grant usage on schema pgmill to pgmill_runtime, mill_reader, mill_operator, pgmill_api;
-- The API's own, for pgmill_api alone, and the way there from the hosts' role.
grant execute on function mill.retry_dead_letter(text, text), mill.delete_dead_letter(text, text),
  pgmill.api_submit(jsonb), pgmill.topic_input(text), pgmill.job_output(text, text), pgmill.known_topics(text, text), pgmill.list_jobs(jsonb, int), pgmill.get_job(text), pgmill.trace_jobs(text),
  pgmill.list_dead_letters(jsonb, int), pgmill.count_dead_letters(), pgmill.retry_letter(text, text), pgmill.sweep_dead_letters(jsonb, boolean, int),
  pgmill.get_document(text), pgmill.set_document(text, jsonb, text), pgmill.note_rejected(text), pgmill.list_workers(text, int) to pgmill_api;
do $$
begin
  if not pg_has_role('pgmill_runtime', 'pgmill_api', 'member') then
    grant pgmill_api to pgmill_runtime;
  end if;
exception
  when insufficient_privilege then null; -- the roles are another's: the API says what to grant
end $$;
grant execute on all routines in schema pgmill to pgmill_runtime;
-- What the views call; their tables are read with the owner's rights.
grant execute on function pgmill.preview_retention(), pgmill.is_live(timestamptz, interval, timestamptz), pgmill.holders(), pgmill.claim_key(text, int), pgmill.module_role(text),
  pgmill.job_claim_key(text), pgmill.shown_verdict(text, text, timestamptz), pgmill.wait_code(text, timestamptz, text, timestamptz, text), pgmill.lane_reason(text, text, text), pgmill.all_topics(), pgmill.oldest_ready(text),
  pgmill.river_job_state_in_bitmask(bit, pgmill.river_job_state) to mill_reader, mill_operator;
grant select, insert, update, delete on all tables in schema pgmill to pgmill_runtime;
grant usage, select on all sequences in schema pgmill to pgmill_runtime;
revoke update, delete on pgmill.event, pgmill.log, pgmill.audit from pgmill_runtime;
do $$
declare
  part regclass;
begin
  for part in select inhrelid::regclass from pg_inherits where inhparent = 'pgmill.log'::regclass loop
    execute format('revoke all on %s from pgmill_runtime', part); -- by way of the parent only
  end loop;
end $$;
revoke insert, update, delete on pgmill.build, pgmill.archive, pgmill.module from pgmill_runtime;

-- Clean-ups run as pgmill_cleanup, which hosts may become, and which may delete what a
-- class names and nothing else (N81). Statements for tables that are no module's run as
-- mill_cleaner, which has nothing but what the tables' owner grants it.
do $$
declare
  r text;
begin
  foreach r in array array['pgmill_cleanup', 'mill_cleaner'] loop
    if not pg_has_role('pgmill_runtime', r, 'member') then
      execute format('grant %I to pgmill_runtime', r);
    end if;
  end loop;
exception
  when insufficient_privilege then -- roles of another database's owner
    raise warning 'clean-ups will not run until a superuser says: GRANT pgmill_cleanup, mill_cleaner TO pgmill_runtime';
end $$;
revoke all on all tables in schema pgmill from pgmill_cleanup;
grant usage on schema pgmill to pgmill_cleanup;
grant select on pgmill.retention, pgmill.river_job to pgmill_cleanup;
grant execute on function pgmill.clean(text, text), pgmill.check_retention(text, text, text, interval), pgmill.cleanup_classes(),
  pgmill.cleanup_source(text, text, text, text), pgmill.has_claims(text), pgmill.is_live(timestamptz, interval, timestamptz) to pgmill_cleanup;
do $$
declare
  t text;
begin
  for t in select distinct tbl from pgmill.cleanup_classes() loop
    execute format('grant select, update, delete on pgmill.%I to pgmill_cleanup', t); -- update: to lock the row
  end loop;
end $$;
