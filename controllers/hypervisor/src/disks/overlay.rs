//! The difference that a VM writes on top of a shared base image.

use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use neonvm_disk::image::{Image as _, Memory};
use neonvm_disk::qcow2::Reader;
use neonvm_disk::raw;
use neonvm_types::Bytes;

use super::base::Base;
use super::error::DiskError;
use super::whole;

/// Size of a cluster: what is copied from the base at the first write to it.
const CLUSTER_BITS: u32 = 16;
const CLUSTER: u64 = 1 << CLUSTER_BITS;
/// Bytes of the disk that an entry of the first-level table stands for.
const REACH: u64 = CLUSTER / 8 * CLUSTER;
/// Greatest first-level table that QEMU takes, in bytes.
const MOST_TABLE: u64 = 32 << 20;
/// Where the parts are: the head, the table of reference counts, the only block of counts, the first-level table.
const COUNTS_TABLE: u64 = CLUSTER;
const COUNTS: u64 = 2 * CLUSTER;
const FIRST_TABLE: u64 = 3 * CLUSTER;
/// Size of the head, and where its extensions begin.
const HEAD: u32 = 112;
const BASE_FORMAT: u32 = 0xE279_2ACA;
/// Most bytes of the name of a base.
const MOST_NAME: usize = 1023;

/// Makes a file that holds what differs from the base: nothing yet. The disk has the size of the base or `size`,
/// whichever is more. A file that is there already is used if it is sound. Returns the size of the disk.
///
/// # Errors
/// If the file cannot be made, or one that is there is not sound.
pub fn overlay(path: &Path, base: &Base, size: Option<Bytes>) -> Result<Bytes, DiskError> {
    if let Some(there) = existing(path, base)? {
        return Ok(there);
    }
    let size = size.map_or(base.size, |size| size.max(base.size));
    let absolute = std::path::absolute(&base.path).map_err(DiskError::io("find", &base.path))?;
    let name = absolute.as_os_str().as_bytes();
    if name.len() > MOST_NAME {
        return Err(DiskError::content(path, "the path of its base is longer than 1023 bytes"));
    }
    let size = size.get().checked_next_multiple_of(512).unwrap_or(u64::MAX);
    let entries = size.div_ceil(REACH);
    if entries * 8 > MOST_TABLE {
        return Err(DiskError::content(path, format!("{size} bytes are more than QEMU takes")));
    }
    whole::make(path, |file, _| {
        write(file, size, entries, name, base.format.as_str()).map_err(DiskError::io("write", path))?;
        Ok(Bytes::new(size))
    })
}

/// An empty file in qcow2 format (QEMU, `docs/interop/qcow2`); it takes some hundred bytes whatever its size. QEMU gets the base
/// from its command line; the name in the header is for people and their tools.
fn write(file: &File, size: u64, entries: u64, name: &[u8], format: &str) -> std::io::Result<()> {
    let short = |number: u64| u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes();
    let length = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX).to_be_bytes();
    let clusters = 3 + (entries * 8).div_ceil(CLUSTER);
    let mut extension = Vec::new();
    extension.extend(BASE_FORMAT.to_be_bytes());
    extension.extend(length(format.len()));
    extension.extend(format.as_bytes());
    extension.resize(extension.len().next_multiple_of(8), 0);
    // The end of extensions.
    extension.extend([0; 8]);
    let name_at = u64::from(HEAD) + u64::try_from(extension.len()).unwrap_or(0);
    let mut head = Vec::with_capacity(512);
    head.extend(b"QFI\xfb");
    head.extend(3u32.to_be_bytes());
    head.extend(name_at.to_be_bytes());
    head.extend(length(name.len()));
    head.extend(CLUSTER_BITS.to_be_bytes());
    head.extend(size.to_be_bytes());
    // No encryption.
    head.extend([0; 4]);
    head.extend(short(entries));
    head.extend(FIRST_TABLE.to_be_bytes());
    head.extend(COUNTS_TABLE.to_be_bytes());
    head.extend(1u32.to_be_bytes());
    // No snapshots; no feature that readers must support.
    head.extend([0; 12]);
    head.extend([0; 8]);
    // Reference counts may be left behind while QEMU runs, which makes writes faster.
    head.extend(1u64.to_be_bytes());
    head.extend([0; 8]);
    // Counts of 1 << 4 bits; no compression type.
    head.extend(4u32.to_be_bytes());
    head.extend(HEAD.to_be_bytes());
    head.extend([0; 8]);
    head.extend(extension);
    head.extend(name);
    let counts: Vec<u8> = (0..clusters).flat_map(|_| 1u16.to_be_bytes()).collect();
    file.set_len(clusters * CLUSTER)?;
    file.write_all_at(&head, 0)?;
    file.write_all_at(&COUNTS.to_be_bytes(), COUNTS_TABLE)?;
    file.write_all_at(&counts, COUNTS)
}

/// Size of the disk that an overlay stands for.
///
/// # Errors
/// If it cannot be read or is none.
pub fn overlay_size(path: &Path) -> Result<Bytes, DiskError> {
    let file = File::open(path).map_err(DiskError::io("open", path))?;
    let source = raw::Reader::open(file).map_err(DiskError::io("read", path))?;
    let reader = Reader::open_with(source, |_| Ok(Box::new(Memory::default())));
    let reader =
        reader.map_err(|error| DiskError::Image { path: path.to_owned(), reason: error.to_string() })?;
    Ok(Bytes::new(reader.length()))
}

/// Size of an overlay that is there.
fn existing(path: &Path, base: &Base) -> Result<Option<Bytes>, DiskError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(DiskError::io("open", path)(error)),
    };
    let unusable = |reason: String| DiskError::Image { path: path.to_owned(), reason };
    let source = raw::Reader::open(file).map_err(DiskError::io("read", path))?;
    let mut named = None;
    let reader = Reader::open_with(source, |name| {
        named = Some(name.to_owned());
        Ok(Box::new(Memory::default()))
    });
    let reader = reader.map_err(|error| unusable(error.to_string()))?;
    let size = reader.length();
    drop(reader);
    let wanted = std::path::absolute(&base.path).map_err(DiskError::io("find", &base.path))?;
    match named {
        Some(name) if name == wanted.as_os_str().as_bytes() => Ok(Some(Bytes::new(size))),
        Some(name) => Err(unusable(format!("its base is {}", String::from_utf8_lossy(&name)))),
        None => Err(unusable("it has no base".to_owned())),
    }
}
