-- Nothing reads by job_waiting_since any more: what waits longest of a topic is among the
-- heads of its lanes. A plan of a small table could take it for the index of lanes, and
-- then each admission read all that waits.

-- +goose NO TRANSACTION
-- +goose Up

drop index concurrently if exists pgmill.job_waiting_since;
