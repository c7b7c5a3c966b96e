-- The ends of a job are ends (C39): whichever statement would take one out of a terminal
-- state, or let one succeed that waits for an approval, is refused. An old host runs no
-- such statement.

-- +goose Up

-- +goose StatementBegin
create or replace function pgmill.job_guard() returns trigger
language plpgsql
as $$
begin
  raise exception using errcode = 'MI409', message = format('job %s is %s and cannot become %s: submit another one, or retry its dead letter', old.id, old.state, new.state);
end $$;
-- +goose StatementEnd

-- After and not before: that would lock each row once more.
create trigger job_guard after update of state on pgmill.job for each row
  when (old.state is distinct from new.state
        and (old.state in ('SUCCEEDED', 'FAILED', 'CANCELLED', 'TIMEOUT', 'DENIED') or old.state = 'APPROVAL_REQUIRED' and new.state = 'SUCCEEDED'))
  execute function pgmill.job_guard();
