-- name: BellArm :exec
select pgmill.arm(true);
