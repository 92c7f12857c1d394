//! What the image has in a directory that is mounted over: copied into the file system mounted there, as container engines do.
//!
//! Owners, modes, times, links, extended attributes, FIFOs, sockets and device nodes are kept. What is there already stays.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, XattrFlags};

/// Directory that `mke2fs` and the builder make in each ext4 file system; a file system that has nothing else was never used.
const LOST_AND_FOUND: &str = "lost+found";
/// Where content is copied before it is put in place as a whole.
const ASIDE: &str = ".neonvm-new";
/// Directories are copied no deeper than this.
const DEEPEST: u32 = 128;

/// A directory that something is mounted over; what it has stays within reach.
#[derive(Debug)]
pub struct Covered(OwnedFd);

impl Covered {
    /// Opens the directory, before the mount. None if it is none.
    pub fn open(path: &Path) -> Option<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty()).ok().map(Self)
    }

    fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}/.", self.0.as_raw_fd()).into()
    }

    /// Copies the content into a file system in memory that was mounted over it, which takes over owner and mode as well, unless
    /// they are those of a directory made for the mount.
    ///
    /// # Errors
    /// The first that cannot be copied, with its path.
    pub fn into_memory(&self, target: &Path) -> Result<(), String> {
        let source = self.path();
        tree(&source, target)?;
        own(&source, target).map_err(|error| format!("{}: {error}", target.display()))
    }

    /// Copies the content into a disk that was mounted over it, if the disk was never used, and removes the disk's `lost+found`.
    /// An interrupted copy is done again.
    ///
    /// # Errors
    /// The first that cannot be copied, with its path; the disk is then as it was.
    pub fn into_disk(&self, target: &Path) -> Result<(), String> {
        let aside = target.join(ASIDE);
        let names = |path: &Path| -> Vec<_> {
            fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.file_name()).collect()
        };
        let lost = target.join(LOST_AND_FOUND);
        let used =
            |name: &std::ffi::OsString| name != OsStr::new(LOST_AND_FOUND) && name != OsStr::new(ASIDE);
        let in_place = names(target).iter().any(used);
        if lost.is_dir() && (!in_place || aside.exists()) {
            let failed = |path: &Path| {
                let path = path.to_owned();
                move |error: io::Error| format!("{}: {error}", path.display())
            };
            if !in_place {
                let _ = fs::remove_dir_all(&aside);
                fs::create_dir(&aside).map_err(failed(&aside))?;
                if let Err(error) = tree(&self.path(), &aside) {
                    let _ = fs::remove_dir_all(&aside);
                    return Err(error);
                }
                own(&self.path(), target).map_err(failed(target))?;
                File::open(target).and_then(|file| Ok(rustix::fs::syncfs(&file)?)).map_err(failed(target))?;
            }
            for name in names(&aside) {
                fs::rename(aside.join(&name), target.join(&name)).map_err(failed(&target.join(&name)))?;
            }
            fs::remove_dir(&aside).map_err(failed(&aside))?;
        }
        // One with lost files in it stays.
        let _ = fs::remove_dir(&lost);
        Ok(())
    }
}

/// Gives the directory the other's owner and mode, unless that is root's and writable by root alone: the directory of an image
/// without content of its own, which every user of the workload should be able to use.
fn own(source: &Path, target: &Path) -> io::Result<()> {
    let metadata = fs::metadata(source)?;
    let plain = metadata.uid() == 0 && metadata.gid() == 0 && metadata.mode() & 0o7777 == 0o755;
    if plain {
        return fs::set_permissions(target, fs::Permissions::from_mode(0o777));
    }
    attributes(source, target, &metadata)
}

/// Copies all that is below one directory into another, which exists. Other file systems below are left out.
///
/// # Errors
/// The first that cannot be copied, with its path.
pub fn tree(source: &Path, target: &Path) -> Result<(), String> {
    let device = fs::metadata(source).map_err(|error| format!("{}: {error}", source.display()))?.dev();
    let mut copy = Copy { device, links: BTreeMap::new() };
    copy.directory(source, target, 0)
}

struct Copy {
    device: u64,
    /// Where files with several names are, by number.
    links: BTreeMap<u64, PathBuf>,
}

impl Copy {
    fn directory(&mut self, source: &Path, target: &Path, depth: u32) -> Result<(), String> {
        let failed = |error: io::Error| format!("{}: {error}", target.display());
        if depth > DEEPEST {
            return Err(format!("{}: more than {DEEPEST} directories deep", target.display()));
        }
        for entry in fs::read_dir(source).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            if depth == 0 && name == OsStr::new(LOST_AND_FOUND) {
                continue;
            }
            self.one(&entry.path(), &target.join(name), depth)?;
        }
        Ok(())
    }

    fn one(&mut self, source: &Path, target: &Path, depth: u32) -> Result<(), String> {
        let failed = |error: io::Error| format!("{}: {error}", target.display());
        let metadata = fs::symlink_metadata(source).map_err(failed)?;
        if metadata.dev() != self.device {
            return Ok(());
        }
        if metadata.is_dir() {
            match fs::create_dir(target) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    // What is there is used as it is: a link could lead elsewhere.
                    if !fs::symlink_metadata(target).is_ok_and(|there| there.is_dir()) {
                        return Ok(());
                    }
                    return self.directory(source, target, depth.saturating_add(1));
                }
                made => made.map_err(failed)?,
            }
            self.directory(source, target, depth.saturating_add(1))?;
            return attributes(source, target, &metadata).map_err(failed);
        }
        if fs::symlink_metadata(target).is_ok() {
            return Ok(());
        }
        if metadata.nlink() > 1 {
            if let Some(first) = self.links.get(&metadata.ino()) {
                return fs::hard_link(first, target).map_err(failed);
            }
            self.links.insert(metadata.ino(), target.to_owned());
        }
        make(source, target, &metadata).and_then(|()| attributes(source, target, &metadata)).map_err(failed)
    }
}

fn make(source: &Path, target: &Path, metadata: &Metadata) -> io::Result<()> {
    let kind = metadata.file_type();
    if kind.is_symlink() {
        return std::os::unix::fs::symlink(fs::read_link(source)?, target);
    }
    if kind.is_file() {
        let mut from = File::open(source)?;
        let mut to = File::options().write(true).create_new(true).open(target)?;
        return io::copy(&mut from, &mut to).map(drop);
    }
    let special = if kind.is_fifo() {
        FileType::Fifo
    } else if kind.is_socket() {
        FileType::Socket
    } else if kind.is_char_device() {
        FileType::CharacterDevice
    } else {
        FileType::BlockDevice
    };
    Ok(rustix::fs::mknodat(CWD, target, special, Mode::from_raw_mode(0o600), metadata.rdev())?)
}

/// Owner, mode, extended attributes and times, in the order in which the kernel keeps all of them.
fn attributes(source: &Path, target: &Path, metadata: &Metadata) -> io::Result<()> {
    std::os::unix::fs::lchown(target, Some(metadata.uid()), Some(metadata.gid()))?;
    if !metadata.file_type().is_symlink() {
        fs::set_permissions(target, fs::Permissions::from_mode(metadata.mode() & 0o7777))?;
    }
    extended(source, target);
    let time = Timespec { tv_sec: metadata.mtime(), tv_nsec: metadata.mtime_nsec() };
    let access = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let times = Timestamps { last_access: access, last_modification: time };
    // A time is of no use that keeps a file from being there.
    let _ = rustix::fs::utimensat(CWD, target, &times, AtFlags::SYMLINK_NOFOLLOW);
    Ok(())
}

/// Extended attributes that the file system takes: those in memory have no `user.` ones before Linux 6.6.
fn extended(source: &Path, target: &Path) {
    let mut names = vec![0; 64 << 10];
    let Ok(length) = rustix::fs::llistxattr(source, &mut names) else { return };
    for name in names.get(..length).unwrap_or_default().split(|byte| *byte == 0) {
        let mut value = vec![0; 64 << 10];
        let Ok(name) = std::ffi::CString::new(name) else { continue };
        if let Ok(length) = rustix::fs::lgetxattr(source, &name, &mut value) {
            let value = value.get(..length).unwrap_or_default();
            let _ = rustix::fs::lsetxattr(target, &name, value, XattrFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use neonvm_test_support::{need, needs};

    use super::*;

    #[test]
    fn all_that_an_image_can_have_is_copied_with_its_attributes() {
        // Owners can be set by root only.
        need!(needs::root());
        let root = tempfile::tempdir().unwrap();
        let (from, to) = (root.path().join("from"), root.path().join("to"));
        fs::create_dir_all(from.join("db/deep")).unwrap();
        fs::create_dir(&to).unwrap();
        fs::write(from.join("db/file"), "content").unwrap();
        fs::hard_link(from.join("db/file"), from.join("second")).unwrap();
        std::os::unix::fs::symlink("../nowhere", from.join("link")).unwrap();
        rustix::fs::mknodat(CWD, from.join("fifo"), FileType::Fifo, Mode::from_raw_mode(0o640), 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(from.join("socket")).unwrap();
        for (name, owner, mode) in [("db", 999, 0o2775), ("db/file", 33, 0o4750), ("db/deep", 0, 0o1777)] {
            std::os::unix::fs::chown(from.join(name), Some(owner), Some(owner + 1)).unwrap();
            fs::set_permissions(from.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        std::os::unix::fs::lchown(from.join("link"), Some(7), Some(7)).unwrap();
        fs::write(to.join("kept"), "old").unwrap();
        fs::write(from.join("kept"), "new").unwrap();
        tree(&from, &to).unwrap();
        let facts = |path: &Path| {
            let metadata = fs::symlink_metadata(path).unwrap();
            (metadata.file_type(), metadata.mode(), metadata.uid(), metadata.gid(), metadata.mtime())
        };
        for name in ["db", "db/file", "db/deep", "second", "link", "fifo", "socket"] {
            assert_eq!(facts(&from.join(name)), facts(&to.join(name)), "{name}");
        }
        assert_eq!(fs::read_to_string(to.join("second")).unwrap(), "content");
        assert_eq!(to.join("second").metadata().unwrap().ino(), to.join("db/file").metadata().unwrap().ino());
        assert_eq!(fs::read_to_string(to.join("kept")).unwrap(), "old");
    }

    #[test]
    fn a_disk_gets_the_images_content_once_and_loses_what_mke2fs_made() {
        need!(needs::root());
        let root = tempfile::tempdir().unwrap();
        let (image, disk) = (root.path().join("image"), root.path().join("disk"));
        fs::create_dir_all(image.join("main")).unwrap();
        std::os::unix::fs::chown(&image, Some(101), Some(102)).unwrap();
        fs::set_permissions(&image, fs::Permissions::from_mode(0o700)).unwrap();
        fs::create_dir_all(disk.join(LOST_AND_FOUND)).unwrap();
        // A copy that was interrupted.
        fs::create_dir_all(disk.join(ASIDE).join("half")).unwrap();
        let covered = Covered::open(&image).unwrap();
        covered.into_disk(&disk).unwrap();
        let names = || -> Vec<_> {
            let mut names: Vec<_> = fs::read_dir(&disk).unwrap().map(|e| e.unwrap().file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(names(), ["main"]);
        let metadata = disk.metadata().unwrap();
        assert_eq!((metadata.uid(), metadata.gid(), metadata.mode() & 0o7777), (101, 102, 0o700));
        // Used from now on, also when it is empty.
        fs::remove_dir(disk.join("main")).unwrap();
        fs::set_permissions(&disk, fs::Permissions::from_mode(0o750)).unwrap();
        covered.into_disk(&disk).unwrap();
        assert_eq!((names().len(), disk.metadata().unwrap().mode() & 0o7777), (0, 0o750));
        // A disk with data from before keeps its attributes, and lost files.
        fs::write(disk.join("data"), "").unwrap();
        fs::create_dir_all(disk.join(LOST_AND_FOUND).join("#12")).unwrap();
        covered.into_disk(&disk).unwrap();
        assert_eq!(names(), ["data", LOST_AND_FOUND]);
    }

    #[test]
    fn a_directory_made_for_the_mount_is_open_to_every_user() {
        let root = tempfile::tempdir().unwrap();
        let (image, disk) = (root.path().join("image"), root.path().join("disk"));
        fs::create_dir(&image).unwrap();
        fs::create_dir_all(disk.join(LOST_AND_FOUND)).unwrap();
        need!(needs::root());
        fs::set_permissions(&image, fs::Permissions::from_mode(0o755)).unwrap();
        Covered::open(&image).unwrap().into_disk(&disk).unwrap();
        assert_eq!(disk.metadata().unwrap().mode() & 0o7777, 0o777);
    }
}
