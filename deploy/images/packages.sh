#!/bin/sh
# Installs Debian packages into an image: packages.sh MIRROR SECURITY-MIRROR PACKAGE...
# It leaves nothing that depends on the time of the build: no lists, caches or logs.
set -eu
mirror=$1
security=$2
shift 2
export DEBIAN_FRONTEND=noninteractive

rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*
cat > /etc/apt/sources.list <<SOURCES
deb $mirror trixie main
deb $mirror trixie-updates main
deb $security trixie-security main
SOURCES

# The lists of a snapshot are older than they claim to be valid.
apt-get -o Acquire::Check-Valid-Until=false update
apt-get -y dist-upgrade
apt-get -y --no-install-recommends install "$@"
apt-get clean
rm -rf /var/lib/apt/lists/* /var/cache/* /var/log/* /tmp/packages.sh
