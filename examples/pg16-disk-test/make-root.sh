#!/bin/sh
# Makes the root directory of the example: BusyBox, PostgreSQL 16, control group tools and the allocation tester, about 70 MB. Debian
# 12 has PostgreSQL 15, so the programs come from a Python package that brings them; the file is checked by its digest. Needs no
# privileges, but apt-get, pip3 and a C compiler. For amd64.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=${1:?usage: make-root.sh DIRECTORY}
package=pgserver==0.1.4
digest=d595789b47624a3d963aa9aa6359da9be31beb7e61f1a45541953242068b8813
"$here/../busybox/make-root.sh" "$root"
root=$(cd "$root" && pwd)
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
cd "$work"
# The libraries of the control group tools differ between releases of Debian.
libraries=$(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances \
    cgroup-tools | grep '^lib')
# shellcheck disable=SC2086
apt-get download -q -o APT::Sandbox::User=root $libraries zlib1g cgroup-tools >/dev/null
for file in *.deb; do dpkg-deb --extract "$file" tree; done
# What is needed at run time; the rest of the packages is documentation and character sets.
mkdir -p "$root/lib64" "$root/usr/bin" "$root/usr/sbin" "$root/usr/lib/postgresql/16"
for directory in lib usr/lib; do
    [ ! -d "tree/$directory/x86_64-linux-gnu" ] || { mkdir -p "$root/$directory"; cp -a "tree/$directory/x86_64-linux-gnu" "$root/$directory/"; }
done
# Debian 13 has all of it below usr, and the loader leads to lib.
[ -e "$root/lib" ] || ln -s usr/lib "$root/lib"
rm -rf "$root/usr/lib/x86_64-linux-gnu/gconv"
for directory in lib64 usr/lib64; do [ ! -d "tree/$directory" ] || cp -a "tree/$directory/." "$root/lib64/"; done
cp tree/usr/bin/cg* "$root/usr/bin/" && cp tree/usr/sbin/cgconfigparser "$root/usr/sbin/"
pip3 download -q --no-deps --disable-pip-version-check --only-binary=:all: --implementation cp --abi cp311 --python-version 3.11 \
    --platform manylinux_2_17_x86_64 "$package"
wheel=$(echo pgserver-*.whl)
echo "$digest  $wheel" | sha256sum --check --quiet
python3 -m zipfile -e "$wheel" wheel
cp -a wheel/pgserver.libs/. "$root/usr/lib/x86_64-linux-gnu/"
for part in bin lib share; do cp -a "wheel/pgserver/pginstall/$part" "$root/usr/lib/postgresql/16/"; done
rm -rf "$root/usr/lib/postgresql/16/lib/pkgconfig" "$root"/usr/lib/postgresql/16/lib/*.a
chmod 755 "$root"/usr/lib/postgresql/16/bin/*
for program in "$root"/usr/lib/postgresql/16/bin/*; do ln -sf "../lib/postgresql/16/bin/${program##*/}" "$root/usr/bin/"; done
cc -O -static -o "$root/bin/allocate-loop" "$here/allocate-loop.c"
echo 'postgres:x:70:70:PostgreSQL:/var/lib/postgresql:/bin/sh' >> "$root/etc/passwd"
printf 'users:x:100:postgres\npostgres:x:70:\n' >> "$root/etc/group"
