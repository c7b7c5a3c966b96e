-- name: LeaseRegister :one
-- A process registers itself once, with a fresh id: its lease starts now. A conflict
-- is the same process again, whose answer was lost.
insert into pgmill.instance (kind, id, contract, version, profile, ttl, pools, labels)
values (@kind, @id, @contract, @version, @profile, make_interval(secs => @ttl_seconds::float8), sqlc.narg('pools')::text[], sqlc.narg('labels')::jsonb)
on conflict (kind, id) do update
set last_seen = now()
returning since;

-- name: LeaseDeregister :execrows
-- Beats a fresh timestamp: not live from now on. Zero rows: there was nothing to leave.
update pgmill.instance
set deregistered_at = now()
where kind = @kind
  and id = @id
  and deregistered_at is null;

-- name: LeaseFunctions :exec
-- Which functions this process has; what waits for a live host looks here.
insert into pgmill.instance_function (instance, function)
select @instance::text, unnest(@functions::text[])
on conflict do nothing;

-- name: LeaseRenew :one
select r.alive::boolean as alive, coalesce(r.broken, false)::boolean as broken, coalesce(r.returned, 0)::int as returned
from pgmill.renew(@me, @known::bigint[], @why::text[]) r;
