//! Files that are there only when they are whole.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::error::DiskError;

/// A name beside the file for what is not whole yet.
fn aside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    path.with_file_name(name)
}

/// Removes what a failure leaves.
struct Aside(PathBuf);

impl Drop for Aside {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Makes a file with what `fill` writes into it. What had the name before is replaced.
pub(super) fn make<T>(
    path: &Path,
    fill: impl FnOnce(&mut File, &Path) -> Result<T, DiskError>,
) -> Result<T, DiskError> {
    let aside = Aside(aside(path));
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(DiskError::io("make", directory))?;
    }
    // Left over from a process that was killed.
    let _ = fs::remove_file(&aside.0);
    let mut options = OpenOptions::new();
    // Content of guests and secrets; QEMU inherits the descriptor.
    options.read(true).write(true).create_new(true).mode(0o600);
    let mut file = options.open(&aside.0).map_err(DiskError::io("make", &aside.0))?;
    let value = fill(&mut file, &aside.0)?;
    fs::rename(&aside.0, path).map_err(DiskError::io("put in place", path))?;
    Ok(value)
}
