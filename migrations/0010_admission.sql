-- River's indexes that serve no statement of ours (two of them GIN, written at each
-- claim) go; an old host reads by none of them either. Concurrently, since dropping
-- takes a lock that traffic would queue behind. And a type for what limits leave to a
-- lane, and the end of functions that nothing calls any more.

-- +goose NO TRANSACTION
-- +goose Up

drop index concurrently if exists pgmill.river_job_args_index;
drop index concurrently if exists pgmill.river_job_metadata_index;
drop index concurrently if exists pgmill.river_job_kind;

-- +goose StatementBegin
do $$
begin
  if to_regtype('pgmill.room') is null then
    create type pgmill.room as (topic_left int, scope_left int, both_left int, suspects_left int);
  end if;
end $$;
-- +goose StatementEnd

drop function if exists pgmill.put_plain(jsonb);
drop function if exists pgmill.lanes(text[]);
drop function if exists pgmill.job_room(text, pgmill.lane[]);
drop function if exists pgmill.scope_weight(text);
