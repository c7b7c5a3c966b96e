-- name: OutboxLook :one
select l.advanced::bigint as advanced, l.head::bigint as head, l.types::text[] as types
from pgmill.look(@seen) l;

-- name: OutboxHead :one
select pgmill.head()::bigint;
