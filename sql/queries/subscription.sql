-- name: FunctionDeclare :batchexec
-- The newest declaration is what is shown; reason says why it does not run.
insert into pgmill.function (name, kind, module, listens, reason)
values (@name, @kind, @module, @listens::text[], @reason)
on conflict (name) do update
set kind = excluded.kind,
    module = excluded.module,
    listens = excluded.listens,
    reason = excluded.reason,
    declared_at = now();

-- name: SubscriptionDeclare :batchone
-- shards, paused_at and the cursors are data: a later declaration leaves them, and
-- hears how many shards there are. One that listens to something else is dormant no
-- more.
insert into pgmill.subscription (name, likes, order_by, shards, batch, max_attempts, on_poison, replayable, timeout)
values (@name, @likes::text[], @order_by, @shards, @batch, @max_attempts, @on_poison, @replayable, make_interval(secs => @timeout_seconds::float8))
on conflict (name) do update
set likes = excluded.likes,
    dormant = subscription.dormant and subscription.likes = excluded.likes,
    batch = excluded.batch,
    max_attempts = excluded.max_attempts,
    on_poison = excluded.on_poison,
    replayable = excluded.replayable,
    timeout = excluded.timeout
returning shards;

-- name: SubscriptionShards :batchone
-- Makes the shards that are missing, each with its first cursor at the position
-- where the subscription starts: behind what is archived, with an audit row if it was
-- to start at zero. Answers where; 0: none was missing, or at zero.
with missing as (
    insert into pgmill.shard (subscription, shard)
    select f.name, n
    from pgmill.subscription f
    cross join generate_series(0, f.shards - 1) n
    where f.name = @name
    on conflict do nothing
    returning subscription, shard
), start as (
    insert into pgmill.cursor (subscription, shard, n, pos)
    select subscription, shard, 0, greatest(@pos::bigint, pgmill.hold_archive())
    from missing
    returning subscription, shard, pos
), told as (
    insert into pgmill.audit (actor, action, subject, reason)
    select 'db:' || session_user, 'subscription.start', subscription || '@' || pos, 'archived'
    from start
    where @pos::bigint = 0 and pos > 0 and shard = 0
)
select coalesce(max(pos), 0)::bigint from start;

-- name: ShardOpen :one
select s.ours::boolean as ours, s.n::bigint as n, s.pos::bigint as pos, s.version::int as version, s.likes::text[] as likes,
       s.shards::int as shards, s.by_key::boolean as by_key, s.batch::int as batch, s.max_attempts::int as max_attempts,
       s.on_poison::text as on_poison, s.timeout_ms::bigint as timeout_ms, s.runnable::boolean as runnable,
       coalesce(s.failing_pos, 0)::bigint as failing_pos, s.attempts::int as attempts, coalesce(s.reason, '')::text as reason,
       s.held::boolean as held, s.suspect_left::int as suspect_left,
       coalesce(s.stop_at, 0)::bigint as stop_at,
       s.parked_keys::text[] as parked_keys, s.replay_keys::text[] as replay_keys
from pgmill.open_shard(@claim, @name, @no) s;

-- name: ShardVersion :one
select coalesce(pgmill.shard_version(@name, @no), -1)::int;

-- name: ShardLock :one
-- As ShardVersion, and it stays so until the commit. No row: the shard is gone.
select (s.version # coalesce((select e.n from pgmill.epoch e where e.one), 0))::int as version
from pgmill.shard s
where s.subscription = @name and s.shard = @no
for no key update of s;

-- name: ShardNote :exec
select pgmill.note_shard(@claim, @name, @no, @pos);

-- name: ShardFail :exec
select pgmill.fail_shard(@claim, @name, @no, @pos, @attempts, @reason, sqlc.narg(wait_ms)::bigint, @hold::boolean);

-- name: ShardPark :one
select pgmill.park_event(@name, @no, @pos, @key, @attempts, @reason)::boolean;

-- name: ShardClear :exec
select pgmill.clear_shard(@name, @no, @passed);

-- name: ShardSettle :exec
select pgmill.settle_shard(@claim, @name, @no, @n, @pos);

-- name: ClaimRelease :exec
select pgmill.release_claim(@claim);

-- name: ClaimFence :exec
select pgmill.fence(@claim);

-- name: ClaimsDerive :one
select d.claims::int as claims, d.moved::int as moved
from pgmill.derive_claims(sqlc.narg(names)::text[]) d;
