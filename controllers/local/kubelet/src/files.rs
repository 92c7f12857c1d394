//! Files that appear whole.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long others may hold a lock: they do no long work while they do.
const LOCK_DEADLINE: Duration = Duration::from_secs(30);

/// Locks a file against other processes. Blocks.
pub(crate) fn lock(file: &fs::File, exclusive: bool) -> io::Result<()> {
    let deadline = Instant::now() + LOCK_DEADLINE;
    loop {
        let locked = if exclusive { file.try_lock() } else { file.try_lock_shared() };
        match locked {
            Err(fs::TryLockError::WouldBlock) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(10));
            }
            locked => return locked.map_err(io::Error::from),
        }
    }
}

/// A name beside a path that no other process uses.
pub(crate) fn beside(path: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}.{number}", std::process::id()))
}

/// Writes a file with a mode; readers see the old or the new content. Not forced to
/// the disk: after a crash of the host nothing that it describes runs any more.
pub(crate) fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let next = beside(path);
    let write = || {
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&next)?;
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.write_all(content)?;
        fs::rename(&next, path)
    };
    write().inspect_err(|_| drop(fs::remove_file(&next)))
}

/// Removes a file or directory with all that is in it. That it is not there is fine. Links are not followed.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Gives a file or directory to a group, which enters a directory. Links are not followed.
pub(crate) fn give_to_group(path: &Path, group: u32) -> io::Result<()> {
    std::os::unix::fs::lchown(path, None, Some(group))?;
    let found = fs::symlink_metadata(path)?;
    if !found.is_dir() {
        return Ok(());
    }
    fs::set_permissions(path, fs::Permissions::from_mode(found.permissions().mode() & 0o7777 | 0o050))
}

/// Opens a file in a directory to which a pod's user may write: no link in its place is followed, and nothing but a file is opened.
pub(crate) fn open_foreign(path: &Path, options: &mut fs::OpenOptions) -> io::Result<fs::File> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let file = options.mode(0o600).custom_flags(flags.bits().cast_signed()).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file")),
    }
}

/// Makes a directory with a mode, and what is above it.
pub(crate) fn directory(path: &Path, mode: u32) -> io::Result<()> {
    fs::create_dir_all(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}
