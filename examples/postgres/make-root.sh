#!/bin/sh
# Makes the root directory of a Debian 13 with PostgreSQL 17, without a registry. Needs root (debootstrap does).
set -eu
root=${1:?usage: make-root.sh DIRECTORY}
command -v debootstrap >/dev/null || { echo 'debootstrap is missing: apt-get install debootstrap' >&2; exit 1; }
debootstrap --variant=minbase --include=postgresql-17,iproute2,procps,ca-certificates trixie "$root"
rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* "$root"/var/log/*.log
cluster="$root/etc/postgresql/17/main"
# For trying out: any client that reaches the port may log in. Give users passwords before other hosts can reach it.
echo 'host all all all trust' >> "$cluster/pg_hba.conf"
echo "listen_addresses = '*'" > "$cluster/conf.d/vm.conf"
