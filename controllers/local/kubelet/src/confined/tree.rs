//! The pod's volumes in a root, at the paths at which its containers mount them. The runner writes to those that it may write to; for
//! commands all are read-only.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Component, Path};

use neonvm_api::runner_pod::{RUN_DIRECTORY, SSH_PRIVATE_DIRECTORY};

use super::{Root, make_directories, make_directory, show};
use crate::mount::Mount;

/// Names that the root has itself. No volume appears there.
const TAKEN: [&str; 13] =
    ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "dev", "proc", "run", "sys", "tmp"];

/// Shows the volumes below `base`.
pub(super) fn show_all(root: &Root, base: &Path) -> io::Result<()> {
    for mount in root.mounts.iter().filter(|mount| !is_taken(&mount.at)) {
        // The sockets of the runner are not for commands.
        if root.host.is_none() && mount.at == Path::new(RUN_DIRECTORY) {
            continue;
        }
        one(root, mount, base)?;
    }
    Ok(())
}

fn is_taken(at: &Path) -> bool {
    let first = at.components().find(|part| matches!(part, Component::Normal(_)));
    first.is_none_or(|first| TAKEN.iter().any(|taken| *first.as_os_str() == **taken))
}

fn one(root: &Root, mount: &Mount, base: &Path) -> io::Result<()> {
    let source = match mount.open() {
        Ok(source) => source,
        // What is gone meanwhile is not shown to a command.
        Err(_) if root.host.is_none() => return Ok(()),
        Err(error) => return Err(io::Error::new(error.kind(), format!("{}: {error}", mount.at.display()))),
    };
    let from = source.path();
    let parent = make_directories(base, mount.at.parent().unwrap_or(&mount.at))?;
    let to = parent.join(mount.at.file_name().unwrap_or_default());
    if mount.at == Path::new(SSH_PRIVATE_DIRECTORY) {
        return lend(&from, &to, root.user);
    }
    if mount.has_links {
        make_directory(&to)?;
        for entry in fs::read_dir(&from)? {
            let entry = entry?;
            show(&entry.path(), &to.join(entry.file_name()), false)?;
        }
        return Ok(());
    }
    show(&from, &to, mount.writable && root.host.is_some())
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
