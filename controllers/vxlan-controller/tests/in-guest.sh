#!/bin/sh
# Runs the test program `root` in a guest whose kernel has WireGuard: the distribution's cloud kernel, under QEMU without KVM.
#   tests/in-guest.sh PROGRAM [ARGUMENT...]      for example: target/debug/deps/root-… wireguard::
# PROGRAM is what `cargo test --workspace --test root --no-run` has built. Downloads a package (apt-get), needs qemu-system-x86_64,
# kmod, cpio, iproute2 and nft; ends with the program's exit code.
set -eu
program=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
package=$(apt-cache depends --important linux-image-cloud-amd64 | sed -n 's/ *Depends: //p' | head -n 1)
(cd "$work" && apt-get download -q "$package" && dpkg-deb -x ./*.deb package) >&2
version=$(basename "$work"/package/boot/vmlinuz-*)
version=${version#vmlinuz-}

root=$work/root
mkdir -p "$root"/bin "$root"/proc "$root"/sys "$root"/dev "$root"/tmp "$root"/run/netns "$root/lib/modules/$version/kernel"
modules=$work/package/lib/modules/$version
cp "$modules"/modules.builtin "$modules"/modules.order "$root/lib/modules/$version/"
for part in net drivers/net lib crypto arch/x86/crypto; do
    mkdir -p "$root/lib/modules/$version/kernel/$(dirname $part)"
    cp -r "$modules/kernel/$part" "$root/lib/modules/$version/kernel/$(dirname $part)/" 2>/dev/null || true
done
depmod -b "$root" "$version"

# Programs with the libraries they load, at the places where they look for them.
put() {
    for file in "$1" $(ldd "$1" | grep -o '/[^ ]*'); do
        mkdir -p "$root$(dirname "$file")"
        cp -L "$file" "$root$file"
    done
}
for name in sh ip bridge nft modprobe cat mount dmesg; do
    path=$(PATH=$PATH:/usr/sbin:/sbin command -v "$name")
    put "$path"
    [ -e "$root/bin/$name" ] || cp -L "$path" "$root/bin/$name"
done
put "$program"
mkdir -p "$root/sbin"
cp "$root/bin/modprobe" "$root/sbin/modprobe"
cp "$program" "$root/bin/tests"
cat > "$root/init" <<END
#!/bin/sh
export PATH=/bin:/sbin:/usr/bin:/usr/sbin HOME=/tmp RUST_BACKTRACE=1
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mount -t tmpfs none /tmp
mount -t tmpfs none /run
ip link set lo up
/bin/tests --test-threads=1 $*
echo "EXIT \$?"
echo o > /proc/sysrq-trigger
while :; do read -r line < /dev/zero || :; done
END
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet) > "$work/initramfs"
timeout "${NEONVM_GUEST_TIMEOUT:-900}" qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m 2048 -nographic -no-reboot -nic none \
    -kernel "$work/package/boot/vmlinuz-$version" -initrd "$work/initramfs" \
    -append "console=ttyS0 quiet panic=-1 loglevel=3" < /dev/null | tee "$work/log"
exit "$(sed -n 's/^EXIT \([0-9]*\).*/\1/p' "$work/log" | tail -n 1 | grep . || echo 1)"
