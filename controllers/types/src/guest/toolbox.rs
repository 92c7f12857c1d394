//! Names in `/neonvm/bin`. The builder links each of them to the guest program, which knows by the name what to do.

/// Names under which the guest program does its own work.
pub const ROLES: &[&str] =
    &["init", "neonvmd", "neonvm-shell", "resize-swap", "set-disk-quota", "poweroff", "reboot", "halt"];

/// Programs of others that the guest program stands in for.
pub const OWN_TOOLS: &[&str] = &["cgexec", "su-exec", "setquota", "blkid", "udevadm"];

/// Programs that older tools put there and that the guest program makes superfluous: name, and what there is instead.
pub const REPLACED_TOOLS: &[(&str, &str)] = &[
    ("acpid", "the guest program reads the power button itself"),
    ("agetty", "the guest program offers a login on the serial line"),
    ("udevd", "the guest program makes the links in /dev itself"),
    ("udev-init.sh", "the guest program makes the links in /dev itself"),
    ("udhcpc", "the guest program configures the first interface by DHCP itself"),
    ("udhcpc.script", "the guest program configures the first interface by DHCP itself"),
    (
        "vector",
        "the guest program serves metrics of the VM on port 9100; install vector in the image for more",
    ),
    ("chronyd", "the guest program keeps the clock"),
    ("chronyc", "the guest program keeps the clock; its state is in the metrics of the VM"),
    ("sshd", "the guest program serves SSH on port 22 (enableSSH of the VM)"),
    (
        "ssh-keygen",
        "the guest program makes its host key itself; install openssh-client in the image for others",
    ),
    ("vminit", "init of the guest program does it"),
    ("vmstart", "init of the guest program starts the workload"),
    ("vmshutdown", "init of the guest program runs the shutdown hook; call poweroff"),
    ("resize2fs", "file systems grow at boot; install e2fsprogs in the image for others"),
    (
        "tune2fs",
        "project quotas are a setting of the VM's disk (enableQuotas); install e2fsprogs in the image for others",
    ),
    ("flock", "the workload's lock is held by init; install util-linux in the image for others"),
    ("quota", "call set-disk-quota; install quota in the image for reports"),
    ("edquota", "call set-disk-quota"),
    ("quotacheck", "quotas of ext4 need no check"),
    ("quotaon", "quotas are on where the VM's disk has enableQuotas"),
    ("quotaoff", "call set-disk-quota 0"),
    ("quotastats", "install quota in the image"),
    ("repquota", "install quota in the image"),
];

/// Programs of BusyBox that older tools put there. The image's own is used, else the one of the guest program's shell, if it has
/// it.
const BUSYBOX: &str = "\
[ addgroup adduser ar arch arp arping ash awk base64 basename bc blkdiscard blockdev bunzip2 busybox bzcat bzip2 cal cat chgrp \
chmod chown chpasswd chroot clear cmp comm cp cpio crond crontab cut date dc dd delgroup deluser depmod df diff dirname dmesg \
dnsdomainname du echo ed egrep env expand expr factor fallocate false fdisk fgrep find findfs fold free fsfreeze fstrim fsync \
fuser getopt getty grep groups gunzip gzip hd head hexdump hostid hostname hwclock id ifconfig ifdown ifup insmod install ionice \
iostat ip ipcalc ipcrm ipcs kill killall killall5 klogd less link ln logger login logname logread losetup ls lsattr lsmod lsof \
lspci lzcat lzma md5sum mesg microcom mkdir mkdosfs mke2fs mkfifo mkfs.ext2 mknod mkpasswd mkswap mktemp modinfo modprobe more \
mount mountpoint mpstat mv nameif nc netstat nice nl nmeter nohup nologin nproc nsenter nslookup ntpd od partprobe passwd paste \
patch pgrep pidof ping ping6 pivot_root pkill pmap printenv printf ps pstree pwd pwdx rdate readlink readprofile realpath renice \
reset resize rev rm rmdir rmmod route run-parts script sed seq setpriv setserial setsid sh sha1sum sha256sum sha3sum sha512sum \
showkey shred shuf sleep sort split stat start-stop-daemon strings stty su sulogin sum swapoff swapon switch_root sync sysctl \
syslogd tac tail tar taskset tee telnet test tftp time timeout top touch tr traceroute traceroute6 true truncate tty tunctl \
umount uname unexpand uniq unlink unlzma unshare unxz unzip uptime usleep uudecode uuencode vconfig vi vlock w wall watch \
watchdog wc wget which who whoami xargs xxd xz xzcat yes zcat";

/// Whether a name is one of BusyBox's.
#[must_use]
pub fn is_busybox_tool(name: &str) -> bool {
    BUSYBOX.split_ascii_whitespace().any(|tool| tool == name)
}

/// What there is instead of a program that is superfluous.
#[must_use]
pub fn replacement(name: &str) -> Option<&'static str> {
    REPLACED_TOOLS.iter().find(|(tool, _)| *tool == name).map(|(_, instead)| *instead)
}

/// All names, each once.
pub fn tools() -> impl Iterator<Item = &'static str> {
    let replaced = REPLACED_TOOLS.iter().map(|(tool, _)| *tool);
    ROLES.iter().chain(OWN_TOOLS).copied().chain(replaced).chain(BUSYBOX.split_ascii_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_and_there_once() {
        let mut names: Vec<&str> = tools().collect();
        assert!(names.iter().all(|name| !name.contains('/') && !name.is_empty()));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn what_the_older_tools_put_there_is_known() {
        let of_v0_17 = "busybox acpid udevd agetty su-exec resize2fs blkid udhcpc.script vector vminit vmstart sh poweroff";
        let of_v0_31 = "udevadm flock chronyd chronyc ssh-keygen sshd vmshutdown udev-init.sh resize-swap addgroup adduser nologin";
        let later = "cgexec quota edquota quotacheck quotaoff quotaon quotastats setquota repquota tune2fs neonvmd set-disk-quota";
        for name in [of_v0_17, of_v0_31, later].iter().flat_map(|names| names.split(' ')) {
            assert!(tools().any(|tool| tool == name), "{name}");
        }
        assert!(is_busybox_tool("mount") && !is_busybox_tool("sshd") && replacement("sshd").is_some());
    }
}
