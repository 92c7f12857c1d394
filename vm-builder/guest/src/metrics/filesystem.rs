//! Use of mounted file systems.

use std::path::Path;

use neonvm_types::exposition::{Kind, double};

use super::kernel::first_of_each;
use super::text::Text;

/// Kinds with a limited space that never wait for another host when queried for it.
const KINDS: [&str; 14] = [
    "9p", "bcachefs", "btrfs", "erofs", "exfat", "ext2", "ext3", "ext4", "f2fs", "iso9660", "tmpfs", "vfat",
    "virtiofs", "xfs",
];
/// Mounts below these belong to containers; they come and go.
const PASSING: [&str; 6] = [
    "/run/containerd/",
    "/run/netns/",
    "/run/user/",
    "/var/lib/containerd/",
    "/var/lib/docker/",
    "/var/lib/kubelet/",
];
/// Most file systems that get series.
const MOST: usize = 48;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mounted {
    /// What is mounted, such as `/dev/vda`.
    pub device: String,
    pub mountpoint: String,
    /// Its kind, such as `ext4`.
    pub filesystem: String,
}

/// Use of a file system in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub total: u64,
    pub free: u64,
    /// Free for programs other than root's.
    pub available: u64,
    /// Inodes; 0: the file system has no fixed number.
    pub inodes: u64,
    pub inodes_free: u64,
}

/// The mounts of `/proc/mounts` that get series, in order of their place.
pub(super) fn parse(mounts: &str) -> Vec<Mounted> {
    let parse = |line: &str| -> Option<Mounted> {
        let mut words = line.split(' ');
        let (device, mountpoint, filesystem) = (words.next()?, words.next()?, words.next()?);
        let mountpoint = unescaped(mountpoint);
        let wanted = KINDS.contains(&filesystem) && !PASSING.iter().any(|path| mountpoint.starts_with(path));
        let filesystem = filesystem.to_owned();
        wanted.then(|| Mounted { device: unescaped(device), mountpoint, filesystem })
    };
    // Of mounts over one another only the last can be seen.
    let last_first: Vec<_> = mounts.lines().rev().filter_map(parse).collect();
    let mut mounted = first_of_each(last_first, |mounted| mounted.mountpoint.clone());
    mounted.sort_by(|a, b| a.mountpoint.cmp(&b.mountpoint));
    mounted.truncate(MOST);
    mounted
}

/// The mounts with their use; those that do not report it are left out.
pub(super) fn collect(root: &Path, mounts: &str) -> Vec<(Mounted, Usage)> {
    let usage = |mounted: Mounted| {
        let path = root.join(mounted.mountpoint.trim_start_matches('/'));
        let stat = rustix::fs::statvfs(&path).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        let usage = Usage {
            total: bytes(stat.f_blocks),
            free: bytes(stat.f_bfree),
            available: bytes(stat.f_bavail),
            inodes: stat.f_files,
            inodes_free: stat.f_ffree,
        };
        (usage.total > 0).then_some((mounted, usage))
    };
    parse(mounts).into_iter().filter_map(usage).collect()
}

pub(super) fn render(filesystems: &[(Mounted, Usage)], text: &mut Text) {
    text.collector("filesystem");
    for (family, help, value) in [
        (
            "host_filesystem_free_bytes",
            "Bytes free for programs other than root's.",
            (|usage: &Usage| double(usage.available)) as fn(&Usage) -> f64,
        ),
        ("host_filesystem_total_bytes", "Size in bytes.", |usage| double(usage.total)),
        ("host_filesystem_used_bytes", "Bytes used.", |usage| double(used(usage))),
        ("host_filesystem_used_ratio", "Share used of what programs other than root's may use.", ratio),
        ("host_filesystem_files", "Inodes.", |usage| inodes(usage, usage.inodes)),
        ("host_filesystem_files_free", "Inodes that are free.", |usage| inodes(usage, usage.inodes_free)),
    ] {
        text.family(family, Kind::Gauge, help);
        for (mounted, usage) in filesystems {
            let Mounted { device, mountpoint, filesystem } = mounted;
            let labels =
                [("device", &**device), ("filesystem", &**filesystem), ("mountpoint", &**mountpoint)];
            text.sample(&labels, value(usage));
        }
    }
}

const fn used(usage: &Usage) -> u64 {
    usage.total.saturating_sub(usage.free)
}

/// Not a number for an empty file system, which leaves the sample out.
fn ratio(usage: &Usage) -> f64 {
    double(used(usage)) / double(used(usage).saturating_add(usage.available))
}

/// Not a number for a file system without a fixed number of inodes.
fn inodes(usage: &Usage, number: u64) -> f64 {
    if usage.inodes == 0 { f64::NAN } else { double(number) }
}

/// The VM's disks with their serial numbers, by which the host finds the file systems on them.
pub(super) fn serials(root: &Path) -> Vec<(String, String)> {
    let Ok(entries) = std::fs::read_dir(root.join("sys/class/block")) else { return Vec::new() };
    let serial = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().ok().filter(|name| name.starts_with("vd"))?;
        let serial = super::read(&entry.path().join("serial")).trim().to_owned();
        (!serial.is_empty()).then(|| (format!("/dev/{name}"), serial))
    };
    let mut all: Vec<_> = entries.flatten().filter_map(serial).collect();
    all.sort();
    all.truncate(MOST);
    all
}

pub(super) fn render_serials(serials: &[(String, String)], text: &mut Text) {
    text.family(
        "neonvm_guest_disk_info",
        Kind::Gauge,
        "Serial number of a disk of the VM, which is its name.",
    );
    for (device, serial) in serials {
        text.plain(&[("device", device), ("serial", serial)], 1.0);
    }
}

/// `/proc/mounts` writes spaces, tabs, line ends and backslashes as three octal digits.
fn unescaped(word: &str) -> String {
    let mut out = String::with_capacity(word.len());
    let mut rest = word;
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(before);
        let code = after.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match (code.filter(u8::is_ascii), after.get(3..)) {
            (Some(code), Some(after)) => {
                out.push(char::from(code));
                rest = after;
            }
            _ => {
                out.push('\\');
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_that_stay_get_series() {
        let mounts = "/dev/vda / ext4 rw 0 0\n\
            tmpfs /dev/shm tmpfs rw 0 0\n\
            /dev/vdb /my\\040data ext4 rw 0 0\n\
            /dev/vdc /my\\040data xfs rw 0 0\n\
            binfmt_misc /proc/sys/fs/binfmt_misc binfmt_misc rw 0 0\n\
            proc /proc proc rw 0 0\n\
            host:/x /nfs nfs4 rw 0 0\n\
            shm /run/containerd/io/shm tmpfs rw 0 0\n\
            overlay /var/lib/docker/overlay2/1/merged overlay rw 0 0\n\
            broken\n";
        let mounted = parse(mounts);
        let places: Vec<_> = mounted.iter().map(|m| (&*m.mountpoint, &*m.device)).collect();
        assert_eq!(places, [("/", "/dev/vda"), ("/dev/shm", "tmpfs"), ("/my data", "/dev/vdc")]);
    }

    #[test]
    fn odd_escapes_are_kept() {
        for (word, plain) in
            [("a\\134b", "a\\b"), ("\\04", "\\04"), ("\\", "\\"), ("\\999", "\\999"), ("ü\\040", "ü ")]
        {
            assert_eq!(unescaped(word), plain);
        }
    }
}
