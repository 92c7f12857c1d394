//! The pod's files in a command's root: at the same paths, read-only, with the contents of volumes in place of the node's links to
//! them. Read-only, because the runner, which is root, opens what is there by name.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use neonvm_api::runner_pod::{RUN_DIRECTORY, SSH_PRIVATE_DIRECTORY};

use super::{make_directory, show};

/// Names that the root has itself. No volume appears there.
const TAKEN: [&str; 12] =
    ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "dev", "proc", "sys", "tmp"];

/// Shows what is below `pod` at the same paths below `base`.
pub(super) fn show_all(pod: &Path, base: &Path, user: u32) -> io::Result<()> {
    let own = |path: &str| pod.join(path.trim_start_matches('/'));
    let special = Special { keys: own(SSH_PRIVATE_DIRECTORY), sockets: own(RUN_DIRECTORY) };
    for entry in fs::read_dir(pod)? {
        let entry = entry?;
        let name = entry.file_name();
        if !TAKEN.iter().any(|taken| *name == **taken) {
            one(&entry.path(), &base.join(&name), &special, user)?;
        }
    }
    Ok(())
}

/// What is not shown as it is.
struct Special {
    keys: PathBuf,
    /// Of the runner, some of which belong to the user of QEMU: not shown at all.
    sockets: PathBuf,
}

/// Links were made by the node: what they lead to is never looked into.
fn one(from: &Path, to: &Path, special: &Special, user: u32) -> io::Result<()> {
    if from == special.keys {
        return lend(from, to, user);
    }
    if from == special.sockets {
        return Ok(());
    }
    let kind = fs::symlink_metadata(from)?.file_type();
    if kind.is_dir() {
        make_directory(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            one(&entry.path(), &to.join(entry.file_name()), special, user)?;
        }
        return Ok(());
    }
    // What is gone meanwhile, and what is no file, is not shown.
    match fs::metadata(from) {
        Ok(found) if found.is_dir() || found.is_file() => show(from, to),
        _ => Ok(()),
    }
}

/// The keys that log into the guest, as copies of the user's own: ssh takes no others.
fn lend(from: &Path, to: &Path, user: u32) -> io::Result<()> {
    make_directory(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        // Not what the files of a volume are links to.
        if name.to_string_lossy().starts_with("..") || !entry.path().is_file() {
            continue;
        }
        let copy = to.join(&name);
        fs::write(&copy, fs::read(entry.path())?)?;
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o400))?;
        chown(&copy, Some(user), Some(user))?;
    }
    Ok(())
}
