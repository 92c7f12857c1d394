//! The files of a volume that pods of different users have one after the other.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, fchown};
use std::path::Path;

use crate::{files, naming};

/// Lets the pods of this node use a volume that others have used, and that others use afterwards.
///
/// # Errors
/// If its directory or a file in it cannot be given to their group.
pub(super) fn share(path: &Path) -> io::Result<()> {
    let group = naming::VOLUMES_GROUP;
    std::os::unix::fs::lchown(path, None, Some(group))?;
    // What is made in it belongs to the group as well.
    fs::set_permissions(path, fs::Permissions::from_mode(0o2770))?;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if !entry.file_type()?.is_file() {
            continue;
        }
        let file = files::open_foreign(&entry.path(), fs::OpenOptions::new().read(true))?;
        let metadata = file.metadata()?;
        fchown(&file, None, Some(group))?;
        file.set_permissions(fs::Permissions::from_mode(metadata.permissions().mode() & 0o7777 | 0o660))?;
    }
    Ok(())
}
