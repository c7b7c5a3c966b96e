-- The indexes that lists of jobs go by are by time alone and not by id, too: a third less
-- of the log for each submit and each end. Jobs of one time are sorted when they are
-- listed; for there to be few, a job's time is the moment it is written, not that of its
-- transaction. An old host looks by them, too.

-- +goose NO TRANSACTION
-- +goose Up

create index concurrently if not exists job_by_time on pgmill.job (updated_at);
create index concurrently if not exists job_by_state on pgmill.job (state, updated_at);
create index concurrently if not exists job_by_topic on pgmill.job (topic, updated_at);
create index concurrently if not exists job_by_scope on pgmill.job (scope, updated_at);
drop index concurrently if exists pgmill.job_updated;
drop index concurrently if exists pgmill.job_state;
drop index concurrently if exists pgmill.job_topic;
drop index concurrently if exists pgmill.job_scope;
alter table pgmill.job alter column updated_at set default clock_timestamp();
