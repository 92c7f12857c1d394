//! From the initramfs into the root file system.

use std::convert::Infallible;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::mount::mount_move;

/// What is tried without `init=`.
const DEFAULTS: [&str; 2] = ["/neonvm/bin/init", "/sbin/init"];
/// Directories are emptied no deeper than this.
const DEEPEST: u32 = 32;

/// Moves the mounts to the new root, empties the initramfs to free its memory, and becomes the init of the new root.
///
/// # Errors
/// When that is not possible; the message is complete.
pub fn switch(root: &Path, init: Option<&str>) -> Result<Infallible, String> {
    let candidates: Vec<&str> = init.map_or_else(|| DEFAULTS.to_vec(), |init| vec![init]);
    let exists = |path: &&&str| fs::symlink_metadata(root.join(path.trim_start_matches('/'))).is_ok();
    let Some(program) = candidates.iter().find(exists) else {
        return Err(format!(
            "the root disk has no {}: it was not made by vm-builder, or root= names another disk",
            candidates.join(" nor ")
        ));
    };
    // The init of the disk mounts what it needs itself; these hold state already. `/run` and `/dev/shm` go over, too.
    for mounted in ["/dev", "/proc", "/run", "/sys"] {
        let target = root.join(mounted.trim_start_matches('/'));
        let _ = fs::create_dir_all(&target);
        if mount_move(mounted, &target).is_err() {
            let _ = rustix::mount::unmount(mounted, rustix::mount::UnmountFlags::DETACH);
        }
    }
    if let Ok(metadata) = fs::metadata("/") {
        empty(Path::new("/"), metadata.dev(), 0);
    }
    let failed = |what: &'static str| {
        move |error: rustix::io::Errno| format!("{what}: {}", std::io::Error::from(error))
    };
    std::env::set_current_dir(root).map_err(|error| format!("enter {}: {error}", root.display()))?;
    mount_move(".", "/").map_err(failed("move the root"))?;
    rustix::process::chroot(".").map_err(failed("change the root"))?;
    std::env::set_current_dir("/").map_err(|error| format!("enter /: {error}"))?;
    let error = Command::new(program).env_clear().exec();
    Err(format!("start {program}: {error}"))
}

/// Deletes what is on this very file system; mounts stay, and the modules that are loaded later.
fn empty(directory: &Path, device: u64, depth: u32) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        if metadata.dev() != device || path == Path::new(super::modules::DIRECTORY) {
            continue;
        }
        if metadata.is_dir() {
            if depth < DEEPEST {
                empty(&path, device, depth.saturating_add(1));
            }
            let _ = fs::remove_dir(&path);
        } else {
            let _ = fs::remove_file(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_of_another_kind_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let problem = switch(directory.path(), None).unwrap_err();
        assert!(problem.contains("/neonvm/bin/init nor /sbin/init"), "{problem}");
    }

    #[test]
    fn everything_below_is_deleted() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("a/b")).unwrap();
        fs::write(directory.path().join("a/b/c"), "x").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", directory.path().join("link")).unwrap();
        empty(directory.path(), directory.path().metadata().unwrap().dev(), 0);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
