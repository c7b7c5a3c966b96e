#!/bin/sh
# Installs what is missing of the named sets, from Debian's or Ubuntu's packages:
#
#   deploy/install-deps.sh postgres|redis|rabbitmq|pgbouncer|race ...
#
# postgres has the server, psql and pgbench; race has the C compiler that
# `go test -race` needs. No daemon is started and no cluster made: tests and
# `make run` start their own. Where it may not install, or does not know how, it
# says what to install and fails. PGMILL_INSTALL=no: do nothing, succeed.
set -eu

has() { command -v "$1" >/dev/null 2>&1; }

has_postgres() {
	for dir in "${PGMILL_PG_BIN:-}" /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /usr/local/pgsql/bin \
		/opt/homebrew/opt/postgresql*/bin /usr/local/opt/postgresql*/bin; do
		if [ -x "$dir/initdb" ] && [ -x "$dir/pgbench" ] && { [ -x "$dir/psql" ] || has psql; }; then return 0; fi
	done
	has initdb && has postgres && has pgbench && has psql
}

# packages SET prints the packages that the set lacks here.
packages() {
	case $1 in
	postgres) has_postgres || echo postgresql ;;
	redis) has redis-server || echo redis-server ;;
	rabbitmq) has rabbitmq-server || [ -x /usr/sbin/rabbitmq-server ] || echo rabbitmq-server ;;
	pgbouncer) has pgbouncer || [ -x /usr/sbin/pgbouncer ] || echo pgbouncer ;;
	race) has "${CC:-gcc}" && [ -e /usr/include/stdlib.h -o ! -e /etc/debian_version ] || echo gcc libc6-dev ;;
	*) echo "install-deps: no set named $1" >&2; return 2 ;;
	esac
}

[ "${PGMILL_INSTALL:-}" != no ] || exit 0
missing=
for set in "$@"; do
	found=$(packages "$set")
	missing="$missing${found:+ $found}"
done
[ -n "$missing" ] || exit 0

by_hand() {
	echo "install-deps: please install:$missing" >&2
	echo "  $1" >&2
	exit 1
}

if ! has apt-get; then
	by_hand "(these are Debian's names; PostgreSQL may also be named by PGMILL_PG_BIN=/its/bin)"
elif [ "$(id -u)" != 0 ]; then
	has sudo && sudo -n true 2>/dev/null || by_hand "sudo apt-get install$missing"
	exec sudo -n sh "$0" "$@"
fi

# No "main" cluster, which would take port 5432.
if [ ! -e /etc/postgresql-common/createcluster.conf ]; then
	mkdir -p /etc/postgresql-common
	echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
fi

# No daemons: packages ask this program before they start one.
policy=/usr/sbin/policy-rc.d
log=$(mktemp)
if [ -e $policy ]; then
	trap 'rm -f "$log"' EXIT
else
	trap 'rm -f "$log" $policy' EXIT
	printf '#!/bin/sh\nexit 101\n' >$policy
	chmod 755 $policy
fi
trap 'exit 1' HUP INT TERM

apt() {
	DEBIAN_FRONTEND=noninteractive UCF_FORCE_CONFFOLD=1 apt-get -qq -y \
		-o DPkg::Lock::Timeout=300 -o Dpkg::Options::=--force-confold "$@" >>"$log" 2>&1 </dev/null
}

echo "install-deps: installing$missing"
apt update || true # an old list may still do
# shellcheck disable=SC2086 # one word a package
if ! apt install --no-install-recommends $missing; then
	tail -n 30 "$log" >&2
	by_hand "apt-get install$missing (it failed, see above)"
fi
