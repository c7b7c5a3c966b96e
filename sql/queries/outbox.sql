-- name: OutboxLook :one
select l.advanced::bigint as advanced, l.head::bigint as head, l.types::text[] as types
from pgmill.look(@seen, @hush_ms::int) l;

-- name: BellArm :exec
select pgmill.arm(true);
