-- Below which number no claim of a job is live. What counts live claims reads from there,
-- and not what an old snapshot keeps of those that are gone (F44). Only rows are added,
-- and the last but a few deleted, so that it is read from the newest end of its index.

-- +goose Up

create table pgmill.claim_floor (
  n   bigint primary key,
  low bigint not null
);
insert into pgmill.claim_floor (n, low) values (0, 0);
