//! The file systems every boot has. What is mounted already, by the kernel or by an earlier program, stays.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::{MountFlags, copy, mount};

struct Base {
    target: &'static str,
    kind: &'static str,
    flags: MountFlags,
    options: &'static str,
    /// Boot works without it; its absence is not reported.
    optional: bool,
}

const fn base(
    target: &'static str,
    kind: &'static str,
    flags: MountFlags,
    options: &'static str,
    optional: bool,
) -> Base {
    Base { target, kind, flags, options, optional }
}

const PLAIN: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);
const STRICT: MountFlags = PLAIN.union(MountFlags::NOEXEC);
const NO_PROGRAMS: MountFlags = MountFlags::NOSUID.union(MountFlags::NOEXEC);

/// In this order.
const BASES: [Base; 9] = [
    base("/proc", "proc", STRICT, "", false),
    base("/sys", "sysfs", STRICT, "", false),
    base("/dev", "devtmpfs", MountFlags::NOSUID, "mode=0755", false),
    base("/dev/pts", "devpts", NO_PROGRAMS, "mode=0620,gid=5,ptmxmode=0666", false),
    base("/dev/shm", "tmpfs", PLAIN, "mode=1777", false),
    base("/run", "tmpfs", PLAIN, "mode=0755", false),
    base("/sys/fs/cgroup", "cgroup2", STRICT, "nsdelegate,memory_recursiveprot", false),
    base("/dev/mqueue", "mqueue", STRICT, "", true),
    base("/dev/hugepages", "hugetlbfs", PLAIN, "", true),
];

/// Mounts what is missing. Returns what could not be mounted.
pub fn mount_all() -> Vec<String> {
    let mut problems = Vec::new();
    for base in &BASES {
        let target = Path::new(base.target);
        if is_mount_point(target) {
            continue;
        }
        // On a read-only root a missing directory cannot be made; `mount` then fails.
        let _ = fs::create_dir_all(target);
        let source = Path::new(base.kind);
        let mut result = mount(source, target, base.kind, base.flags, base.options);
        if result.is_err() && !base.options.is_empty() {
            // Older kernels may lack an option.
            result = mount(source, target, base.kind, base.flags, "");
        }
        if let (Err(error), false) = (result, base.optional) {
            problems.push(format!("mount {} on {}: {error}", base.kind, base.target));
        }
    }
    for (link, target) in [
        ("/dev/fd", "/proc/self/fd"),
        ("/dev/stdin", "/proc/self/fd/0"),
        ("/dev/stdout", "/proc/self/fd/1"),
        ("/dev/stderr", "/proc/self/fd/2"),
    ] {
        let _ = symlink(target, link);
    }
    problems
}

/// Where the root file system is seen without what is mounted in it, for a moment.
const ASIDE: &str = "/run/neonvm/image";
/// Left when the content of the image was copied: once a boot, not again by a program that takes over.
const FILLED: &str = "/run/neonvm/filled";

/// Copies what the image has below directories that are mounted over; to be called once the root is the image's. The root is
/// mounted a second time for that, so it does not matter who mounted the others.
///
/// # Errors
/// The first that cannot be copied, with its path.
pub fn fill() -> Result<(), String> {
    if Path::new(FILLED).exists() {
        return Ok(());
    }
    let failed = |what: &'static str| move |error: std::io::Error| format!("{what}: {error}");
    fs::create_dir_all(ASIDE).map_err(failed(ASIDE))?;
    rustix::mount::mount_bind("/", ASIDE).map_err(|error| format!("{ASIDE}: {error}"))?;
    let image = Path::new(ASIDE);
    let mut result = Ok(());
    for target in ["/dev", "/dev/shm", "/run"] {
        let source = image.join(target.trim_start_matches('/'));
        // A link leads to what is copied anyway, or out of the image.
        let is_directory = fs::symlink_metadata(&source).is_ok_and(|metadata| metadata.is_dir());
        if is_directory && is_mount_point(Path::new(target)) {
            result = result.and(copy::tree(&source, Path::new(target)));
        }
    }
    let unmounted = rustix::mount::unmount(ASIDE, rustix::mount::UnmountFlags::DETACH);
    unmounted.map_err(|error| format!("{ASIDE}: {error}"))?;
    let _ = fs::remove_dir(ASIDE);
    fs::write(FILLED, "").map_err(failed(FILLED))?;
    result
}

/// Whether a file system is mounted there: it is another one than the parent's.
pub fn is_mount_point(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let device = |path: &Path| fs::symlink_metadata(path).map(|metadata| metadata.dev()).ok();
    match (device(path), path.parent().and_then(device)) {
        (Some(own), Some(parent)) => own != parent,
        (own, None) => own.is_some(),
        (None, Some(_)) => false,
    }
}

/// Sets the size of `/dev/shm`, in bytes.
pub fn size_shared_memory(bytes: u64) -> std::io::Result<()> {
    size_tmpfs("/dev/shm", &format!("size={bytes}"))
}

/// Gives one of the file systems in memory that every boot has other options. Its flags stay.
pub fn size_tmpfs(path: &str, options: &str) -> std::io::Result<()> {
    let flags = BASES.iter().find(|base| base.target == path).map_or(PLAIN, |base| base.flags);
    Ok(rustix::mount::mount_remount(path, flags, options)?)
}
