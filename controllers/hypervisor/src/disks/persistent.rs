//! Disks on persistent volumes: a file in the volume's root, or the volume as a device. They outlive the VM's pods, so what has content
//! is never formatted.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;

use neonvm_types::Bytes;

use super::empty::{self, mkfs};
use super::error::DiskError;

/// The disk in a volume of mode `Filesystem`: where KubeVirt has it, so that its volumes can be taken over.
pub const FILE: &str = "disk.img";
/// Share of a volume that its own file system keeps, in thousandths, as KubeVirt's default.
const KEPT_THOUSANDTHS: u64 = 55;
/// Sizes of files are multiples of this.
const GRAIN: u64 = 1 << 20;
/// Bytes at both ends of a disk that decide whether it is blank: tables of partitions, and the first blocks of file systems, LVM, LUKS
/// and RAID, lie there.
const ENDS: u64 = 1 << 20;
/// How long `mkfs.ext4` may take. It writes the tables of inodes later, when the disk is mounted.
const MKFS_DEADLINE: Duration = Duration::from_secs(300);
/// Where the superblock of ext4 begins, and in it the magic number and the label: Documentation/filesystems/ext4/super.rst of Linux.
const SUPERBLOCK: usize = 1024;
const MAGIC: (usize, [u8; 2]) = (0x38, [0x53, 0xEF]);
const LABEL: (usize, usize) = (0x78, 16);

/// Why a disk cannot be opened by a runner, which is not root.
const CLOSED: &str = "cannot be opened by the runner, which is not root; a device needs device_ownership_from_security_context = true in the \
                      configuration of the node's containerd or CRI-O, a file system a driver that respects fsGroup";

/// A disk on a persistent volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PersistentDisk<'a> {
    /// Name of the claim, for messages.
    pub claim: &'a str,
    /// Label of the file system, at most 16 bytes: the disk's name, by which the guest finds it.
    pub label: &'a str,
    /// Size of the volume. A file leaves a part of it to the volume's own file system; a device has its own size.
    pub size: Bytes,
    /// It is used as it is.
    pub read_only: bool,
}

/// The size of the file in a volume of this size: 94.5 % of it, in whole MiB.
#[must_use]
pub fn file_size(volume: Bytes) -> Bytes {
    let kept = u128::from(volume.get()).saturating_mul(u128::from(KEPT_THOUSANDTHS)).div_ceil(1000);
    let left = volume.get().saturating_sub(u64::try_from(kept).unwrap_or(u64::MAX));
    Bytes::new(left / GRAIN * GRAIN)
}

/// Prepares a disk: a blank one gets an ext4 file system, one with an ext4 file system of the right label is left as it is, and a file
/// grows to the size of its volume. The file system in it grows in the guest.
///
/// # Errors
/// If it has other content, or cannot be read or written. Nothing was written then.
pub async fn persistent(path: &Path, disk: PersistentDisk<'_>) -> Result<(), DiskError> {
    let failed = |what| DiskError::io(what, path);
    // A link on the volume could lead to a file of the runner.
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !disk.read_only => return make(path, disk),
        Err(error) => return Err(failed("find")(error)),
        Ok(found) if !found.is_file() && !found.file_type().is_block_device() => {
            return Err(DiskError::content(path, "it is neither a file nor a block device"));
        }
        Ok(_) => {}
    }
    let unopened = |error: io::Error| match error.kind() {
        io::ErrorKind::PermissionDenied => refused(path, disk, CLOSED),
        _ => failed("open")(error),
    };
    let file = OpenOptions::new().read(true).write(!disk.read_only).open(path).map_err(unopened)?;
    match content(&file).map_err(failed("read"))? {
        Content::Blank if disk.read_only => Err(refused(
            path,
            disk,
            "is blank, and the disk is read-only; write it first through a disk that is not",
        )),
        Content::Blank => {
            grow(&file, disk).map_err(failed("size"))?;
            mkfs(path, &["-L", disk.label, "-E", "nodiscard,lazy_itable_init=1"], MKFS_DEADLINE).await?;
            file.sync_all().map_err(failed("write"))
        }
        Content::Ext4(label) if label == disk.label => {
            if disk.read_only {
                Ok(())
            } else {
                grow(&file, disk).map_err(failed("size"))
            }
        }
        Content::Ext4(label) => {
            let why = format!(
                "has a file system with the label {label:?}, and the disk is named {:?}; name the disk as the label, or set the label \
                 with e2label",
                disk.label
            );
            Err(refused(path, disk, &why))
        }
        Content::Other => Err(refused(
            path,
            disk,
            "has content that is no ext4 file system; use another claim, or erase the content with wipefs if nothing of it is needed",
        )),
    }
}

/// Prepares the volume that gets the copy of a disk while its guest runs: an empty file of the disk's size, or a device that is large
/// enough.
///
/// # Errors
/// If the volume has content, which would be lost, or is too small, or cannot be read or written.
pub fn empty_copy(path: &Path, claim: &str, size: Bytes) -> Result<(), DiskError> {
    let failed = |what| DiskError::io(what, path);
    let refused = |why: String| DiskError::content(path, format!("claim {claim} {why}; nothing was written"));
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed("find")(error)),
        Ok(found) if found.is_file() || found.file_type().is_block_device() => {}
        Ok(_) => return Err(refused("has something else in the place of the disk".to_owned())),
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o660);
    let mut file = options.open(path).map_err(failed("open"))?;
    if content(&file).map_err(failed("read"))? != Content::Blank {
        return Err(refused("has content, and a copy needs an empty volume".to_owned()));
    }
    if file.metadata().map_err(failed("read"))?.is_file() {
        file.set_len(size.get()).map_err(failed("size"))?;
    }
    let has = file.seek(SeekFrom::End(0)).map_err(failed("read"))?;
    if has < size.get() {
        return Err(refused(format!("has {}, and the disk has {size}", Bytes::new(has))));
    }
    file.sync_all().map_err(failed("write"))
}

fn refused(path: &Path, disk: PersistentDisk<'_>, why: &str) -> DiskError {
    DiskError::content(path, format!("claim {} {why}; nothing was written", disk.claim))
}

/// A new file, which is there only when it is whole and on the volume's storage.
fn make(path: &Path, disk: PersistentDisk<'_>) -> Result<(), DiskError> {
    let size = file_size(disk.size);
    if size == Bytes::ZERO {
        return Err(refused(path, disk, "is too small for a file system"));
    }
    let directory = path.parent().unwrap_or(Path::new("/"));
    empty::file_system(path, size, disk.label, |file| file.sync_all())?;
    File::open(directory).and_then(|opened| opened.sync_all()).map_err(DiskError::io("write", directory))
}

/// Makes a file as large as its volume lets it be. It never shrinks, and a device has its size already.
fn grow(file: &File, disk: PersistentDisk<'_>) -> io::Result<()> {
    let found = file.metadata()?;
    let size = file_size(disk.size).get();
    if found.is_file() && found.len() < size {
        file.set_len(size)?;
        file.sync_all()?;
    }
    Ok(())
}

/// What a disk holds.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    /// Nothing.
    Blank,
    /// An ext4 file system with this label.
    Ext4(String),
    /// Anything else.
    Other,
}

fn content(mut file: &File) -> io::Result<Content> {
    let length = file.seek(SeekFrom::End(0))?;
    let mut head = vec![0; usize::try_from(ENDS.min(length)).unwrap_or(0)];
    let mut tail = head.clone();
    file.read_exact_at(&mut head, 0)?;
    file.read_exact_at(&mut tail, length.saturating_sub(ENDS))?;
    if head.iter().chain(&tail).all(|byte| *byte == 0) {
        return Ok(Content::Blank);
    }
    let superblock = head.get(SUPERBLOCK..).unwrap_or_default();
    let part = |at: usize, length: usize| superblock.get(at..at.saturating_add(length));
    if part(MAGIC.0, 2) != Some(MAGIC.1.as_slice()) {
        return Ok(Content::Other);
    }
    let label = part(LABEL.0, LABEL.1).unwrap_or_default();
    let label = label.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(Content::Ext4(String::from_utf8_lossy(label).into_owned()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn disk(label: &str, size: Bytes) -> PersistentDisk<'_> {
        PersistentDisk { claim: "pg-data", label, size, read_only: false }
    }

    fn prepare(path: &Path, disk: PersistentDisk<'_>) -> Result<(), String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(persistent(path, disk)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_disk_is_formatted_once_and_grows_with_its_volume() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        prepare(&path, disk("data", Bytes::mib(200))).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        assert_eq!(content(&file).unwrap(), Content::Ext4("data".into()));
        assert_eq!(file.metadata().unwrap().len(), 189 << 20);
        // Bytes of the guest.
        file.write_all_at(b"rows", 150 << 20).unwrap();
        prepare(&path, disk("data", Bytes::mib(400))).unwrap();
        prepare(&path, disk("data", Bytes::mib(100))).unwrap();
        let mut rows = [0; 4];
        file.read_exact_at(&mut rows, 150 << 20).unwrap();
        assert_eq!(
            (&rows, file.metadata().unwrap().len()),
            (b"rows", 378 << 20),
            "it grows, and never shrinks"
        );
        prepare(&path, PersistentDisk { read_only: true, ..disk("data", Bytes::mib(800)) }).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 378 << 20);
    }

    #[test]
    fn what_has_content_is_never_formatted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        let read_only = PersistentDisk { read_only: true, ..disk("data", Bytes::mib(64)) };
        assert!(prepare(&path, read_only).unwrap_err().contains("cannot find"));
        for (at, text) in
            [(510, "\u{55}"), (0, "XFSB"), (64 << 10, "_BHRfS_M"), ((64 << 20) - 512, "EFI PART")]
        {
            let file = File::create(&path).unwrap();
            file.set_len(64 << 20).unwrap();
            file.write_all_at(text.as_bytes(), at).unwrap();
            let before = std::fs::read(&path).unwrap();
            let error = prepare(&path, disk("data", Bytes::mib(128))).unwrap_err();
            assert!(error.contains("claim pg-data has content that is no ext4"), "{error}");
            assert_eq!(std::fs::read(&path).unwrap(), before, "{text}");
        }
        std::fs::remove_file(&path).unwrap();
        prepare(&path, disk("other", Bytes::mib(64))).unwrap();
        let error = prepare(&path, disk("data", Bytes::mib(64))).unwrap_err();
        assert!(error.contains(r#"the label "other", and the disk is named "data""#), "{error}");
        let error = prepare(directory.path(), disk("data", Bytes::mib(64))).unwrap_err();
        assert!(error.contains("neither a file nor a block device"), "{error}");
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let error = prepare(&link, disk("other", Bytes::mib(64))).unwrap_err();
        assert!(error.contains("neither a file nor a block device"), "{error}");
        let error = prepare(&directory.path().join("small"), disk("data", Bytes::new(5))).unwrap_err();
        assert!(error.contains("too small"), "{error}");
    }

    #[test]
    fn a_copy_gets_an_empty_volume_of_the_size_of_the_disk() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        for size in [Bytes::mib(64), Bytes::mib(32)] {
            empty_copy(&path, "new", size).unwrap();
            assert_eq!(std::fs::metadata(&path).unwrap().len(), size.get());
        }
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(b"rows", 4096).unwrap();
        let error = empty_copy(&path, "new", Bytes::mib(64)).unwrap_err().to_string();
        assert!(error.contains("claim new has content, and a copy needs an empty volume"), "{error}");
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 32 << 20, "it is as it was");
        let error = empty_copy(directory.path(), "new", Bytes::mib(64)).unwrap_err().to_string();
        assert!(error.contains("has something else in the place of the disk"), "{error}");
    }

    #[test]
    fn a_blank_file_of_another_program_is_formatted_in_place() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        File::create(&path).unwrap().set_len(64 << 20).unwrap();
        prepare(&path, disk("data", Bytes::mib(32))).unwrap();
        let file = File::open(&path).unwrap();
        assert_eq!(content(&file).unwrap(), Content::Ext4("data".into()));
        assert_eq!(file.metadata().unwrap().len(), 64 << 20);
    }

    proptest! {
        #[test]
        fn a_file_leaves_room_for_the_file_system_around_it(volume in any::<u64>()) {
            let size = file_size(Bytes::new(volume)).get();
            prop_assert!(size.is_multiple_of(GRAIN) && size <= volume);
            prop_assert!(u128::from(volume - size) * 1000 >= u128::from(volume) * u128::from(KEPT_THOUSANDTHS));
            prop_assert!(volume - size <= volume / 18 + 2 * GRAIN);
        }
    }
}
