//! Disks without content.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use neonvm_disk::ext4;
use neonvm_disk::image::Image;
use neonvm_disk::tree::Time;
use neonvm_disk::{raw, swap as swap_area};
use neonvm_types::Bytes;
use tokio::process::Command;

use super::error::DiskError;
use super::whole;

/// How long `mkfs.ext4` may take.
const MKFS_DEADLINE: Duration = Duration::from_secs(60);

/// An empty file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmptyDisk<'a> {
    pub size: Bytes,
    /// Label, at most 16 bytes; the guest finds it by this.
    pub label: &'a str,
    /// Made for project quotas; needs `mkfs.ext4`.
    pub quotas: bool,
}

fn random() -> Result<[u8; 16], DiskError> {
    let path = Path::new("/dev/urandom");
    let mut bytes = [0; 16];
    let mut file = File::open(path).map_err(DiskError::io("open", path))?;
    std::io::Read::read_exact(&mut file, &mut bytes).map_err(DiskError::io("read", path))?;
    // Version 4, variant 1 (RFC 9562).
    let [_, _, _, _, _, _, version, _, variant, ..] = &mut bytes;
    *version = (*version & 0x0F) | 0x40;
    *variant = (*variant & 0x3F) | 0x80;
    Ok(bytes)
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Time { seconds: i64::try_from(since.as_secs()).unwrap_or(0), nanoseconds: since.subsec_nanos() }
}

/// Makes a file with the content of an image, with holes. `sync` is called before the file gets its name.
fn store(
    path: &Path,
    image: &dyn Image,
    sync: impl FnOnce(&File) -> std::io::Result<()>,
) -> Result<(), DiskError> {
    whole::make(path, |file, _| {
        raw::write(image, file, &|_| {}).and_then(|()| sync(file)).map_err(DiskError::io("write", path))
    })
}

/// Makes an ext4 file system, raw and with holes. One that is there already is used.
///
/// # Errors
/// If it cannot be made.
pub async fn empty(path: &Path, disk: EmptyDisk<'_>) -> Result<(), DiskError> {
    if path.exists() {
        return Ok(());
    }
    if disk.quotas {
        return with_quotas(path, disk).await;
    }
    file_system(path, disk.size, disk.label, |_| Ok(()))
}

/// Makes a file with an empty ext4 file system, with holes. `sync` is called before the file gets its name.
pub(super) fn file_system(
    path: &Path,
    size: Bytes,
    label: &str,
    sync: impl FnOnce(&File) -> std::io::Result<()>,
) -> Result<(), DiskError> {
    let options = ext4::Options {
        size: Some(size.get()),
        label: label.to_owned(),
        uuid: random()?,
        hash_seed: random()?,
        created: now(),
        ..ext4::Options::default()
    };
    let system = ext4::empty(&options).map_err(|error| DiskError::content(path, error))?;
    store(path, &system, sync)
}

/// The one with quotas has inodes that only `mkfs.ext4` makes.
async fn with_quotas(path: &Path, disk: EmptyDisk<'_>) -> Result<(), DiskError> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory).map_err(DiskError::io("make", directory))?;
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".mkfs");
    let aside = path.with_file_name(name);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let file = options.open(&aside).map_err(DiskError::io("make", &aside))?;
    file.set_len(disk.size.get()).map_err(DiskError::io("size", &aside))?;
    drop(file);
    let extended = "quotatype=prjquota,nodiscard,lazy_itable_init=1,lazy_journal_init=1";
    let options = ["-O", "quota,project", "-L", disk.label, "-E", extended];
    let made = mkfs(&aside, &options, MKFS_DEADLINE).await;
    let made = made.and_then(|()| std::fs::rename(&aside, path).map_err(DiskError::io("put in place", path)));
    if made.is_err() {
        let _ = std::fs::remove_file(&aside);
    }
    made
}

/// Runs `mkfs.ext4` with these options on a file or device.
pub(super) async fn mkfs(path: &Path, options: &[&str], deadline: Duration) -> Result<(), DiskError> {
    let mut command = Command::new("mkfs.ext4");
    command.args(["-q", "-F", "-b", "4096"]).args(options);
    let path_variable = std::env::var("PATH").unwrap_or_default();
    command.arg(path).env("PATH", format!("{path_variable}:/usr/sbin:/sbin"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let reason = match tokio::time::timeout(deadline, command.output()).await {
        Ok(Ok(output)) if output.status.success() => return Ok(()),
        Ok(Ok(output)) => format!("mkfs.ext4: {}", String::from_utf8_lossy(&output.stderr).trim()),
        Ok(Err(error)) => format!("mkfs.ext4 does not start: {error}"),
        Err(_) => format!("mkfs.ext4 does not end within {} s", deadline.as_secs()),
    };
    Err(DiskError::content(path, reason))
}

/// Makes a swap area with a label of at most 15 bytes. One that is there already is used.
///
/// # Errors
/// If it cannot be made.
pub fn swap(path: &Path, size: Bytes, label: &str) -> Result<(), DiskError> {
    if path.exists() {
        return Ok(());
    }
    let area =
        swap_area::area(size.get(), label, random()?).map_err(|error| DiskError::content(path, error))?;
    store(path, &area, |_| Ok(()))
}
