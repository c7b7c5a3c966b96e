#!/usr/bin/env bash
# A pgmill worker on the SQL contract, with bash and psql.
#
#   worker.sh TOPIC -- COMMAND [ARG…]     LEASE_SECS (30), WORKER and DATABASE_URL, of a role with mill_worker; or
#                                         libpq's own variables (PGHOST, PGPASSWORD, …), which no process list shows
#
# COMMAND gets the input on its standard input; what it prints, JSON, is the output. Any
# exit code but 0 fails the attempt with worker.exit_N. It gets SIGTERM when the job is
# cancelled, its lease is lost or this program is told to stop; what was not done is given back.
set -u
topic=${1:?usage: worker.sh TOPIC -- COMMAND}
[ "${2:-}" = -- ] && [ $# -gt 2 ] || { echo "usage: worker.sh TOPIC -- COMMAND" >&2; exit 2; }
shift 2
lease=${LEASE_SECS:-30}
worker=${WORKER:-$(hostname | cut -c 1-60)-$$}
stopping= nap= child=
dir=$(mktemp -d) && chmod 700 "$dir" || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'stopping=1; kill $nap $child 2>/dev/null' TERM INT

# Values are variables of psql, quoted by it: never part of the statement. What goes well
# prints rows, what does not prints its SQLSTATE on the error output.
sql() {
  local statement=$1 v
  shift
  local args=()
  for v in "$@"; do args+=(-v "$v"); done
  psql -XqAt -v ON_ERROR_STOP=1 -v VERBOSITY=sqlstate "${args[@]}" ${DATABASE_URL:+"$DATABASE_URL"} <<<"$statement"
}

rest() { sleep "$1" & nap=$!; wait "$nap"; nap=; }

# says how the job ended; a lease that was lost is no fault of this program.
report() { echo "$id $(sql "$@" 2>&1)"; }

while [ -z "$stopping" ]; do
  claim=$(sql "select job_id, token, encode(convert_to(input::text, 'UTF8'), 'base64') from mill.claim_jobs(:'worker', array[:'topic'], 1, :'lease'::int)" \
    worker="$worker" topic="$topic" lease="$lease") || { rest 2; continue; }
  if [ -z "$claim" ]; then rest 0.5; continue; fi
  claim=${claim//$'\n'/}
  IFS='|' read -r id token input <<<"$claim"
  base64 -d <<<"$input" >"$dir/in"
  "$@" <"$dir/in" >"$dir/out" &
  child=$!
  [ -n "$stopping" ] && kill "$child" 2>/dev/null
  good=$SECONDS dropped= next=$((SECONDS + (lease + 2) / 3))
  while kill -0 "$child" 2>/dev/null; do
    sleep 0.1
    [ -n "$stopping" ] && kill "$child" 2>/dev/null # again: one that had only just begun may not have heard
    [ "$SECONDS" -lt "$next" ] && continue
    began=$SECONDS next=$((SECONDS + (lease + 2) / 3))
    lost=$(sql "select cancelled from mill.renew_jobs(array[:'id'], array[:'token'])" id="$id" token="$token" 2>/dev/null)
    [ "$lost" = f ] && good=$began
    if [ "$lost" = t ] || [ $((SECONDS - good)) -ge "$lease" ]; then
      dropped=1
      kill "$child" 2>/dev/null
    fi
  done
  wait "$child"
  code=$?
  child=
  if [ -n "$dropped" ]; then
    echo "$id dropped"
  elif [ "$code" = 0 ]; then
    report "select mill.complete_job(:'id', :'token', :'output'::jsonb)" id="$id" token="$token" output="$(cat "$dir/out")"
  elif [ -n "$stopping" ]; then
    report "select mill.release_job(:'id', :'token')" id="$id" token="$token"
  else
    report "select mill.fail_job(:'id', :'token', :'reason')" id="$id" token="$token" reason="worker.exit_$code"
  fi
done
