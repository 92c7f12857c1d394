#!/bin/sh
# Makes a root directory of a few megabytes from Debian's package busybox-static. Needs no privileges.
set -eu
root=${1:?usage: make-root.sh DIRECTORY}
mkdir -p "$root" && root=$(cd "$root" && pwd)
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
(cd "$work" && apt-get download -q -o APT::Sandbox::User=root busybox-static >/dev/null && dpkg-deb --extract busybox-static_*.deb tree)
busybox="$work/tree/bin/busybox"
[ -e "$busybox" ] || busybox="$work/tree/usr/bin/busybox"
mkdir -p "$root/bin" "$root/etc" "$root/root" "$root/tmp" "$root/var/www"
cp "$busybox" "$root/bin/busybox"
for name in $("$busybox" --list); do
    [ "$name" = busybox ] || ln -sf busybox "$root/bin/$name"
done
echo 'root:x:0:0:root:/root:/bin/sh' > "$root/etc/passwd"
echo 'nobody:x:65534:65534:nobody:/:/bin/false' >> "$root/etc/passwd"
printf 'root:x:0:\nnogroup:x:65534:\n' > "$root/etc/group"
chmod 1777 "$root/tmp"
