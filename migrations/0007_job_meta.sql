-- What a client of the API says of a job besides its work: who acts, which capability,
-- which risks. Kept as sent and copied to every retry. An old host leaves it null.

-- +goose Up

alter table pgmill.job add column meta jsonb;
