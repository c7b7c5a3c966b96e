-- River's indexes that serve no statement of ours (two of them GIN, written at each
-- claim) go. An old host reads by none of them either. Concurrently, since dropping
-- takes a lock that traffic would queue behind.

-- +goose NO TRANSACTION
-- +goose Up

drop index concurrently if exists pgmill.river_job_args_index;
drop index concurrently if exists pgmill.river_job_metadata_index;
drop index concurrently if exists pgmill.river_job_kind;
