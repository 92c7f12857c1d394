//! What a machine writes to a disk whose base it shares.

use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use neonvm_disk::image::{Image as _, Memory};
use neonvm_disk::qcow2::{self, Compression, Options, Reader};
use neonvm_disk::raw;
use neonvm_types::Bytes;

use super::base::Base;
use super::error::DiskError;
use super::whole;

/// Size of a cluster: what is copied from the base at the first write to it.
const CLUSTER: u32 = 64 << 10;
/// Where extensions of the head begin: our writer's head has 112 bytes.
const EXTENSIONS: u64 = 112;
/// Extension with the format of the base (QEMU, `docs/interop/qcow2`).
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
    whole::make(path, |file, _| {
        let empty = Memory { bytes: Vec::new(), length: size.get() };
        let options = Options {
            cluster_size: CLUSTER,
            compression: Compression::None,
            lazy_refcounts: true,
            ..Options::default()
        };
        qcow2::write(&empty, file, &options).map_err(|error| DiskError::content(path, error))?;
        refer(file, name, base.format.as_str()).map_err(DiskError::io("write", path))?;
        Ok(Bytes::new(size.get().next_multiple_of(512)))
    })
}

/// Enters the base into the head. QEMU is told the base by other means; this is for people and their tools.
fn refer(file: &File, name: &[u8], format: &str) -> std::io::Result<()> {
    let length = |bytes: usize| u32::try_from(bytes).unwrap_or(0).to_be_bytes();
    let mut extension = Vec::new();
    extension.extend(BASE_FORMAT.to_be_bytes());
    extension.extend(length(format.len()));
    extension.extend(format.as_bytes());
    extension.resize(extension.len().next_multiple_of(8), 0);
    // The end of extensions.
    extension.extend([0; 8]);
    let at = EXTENSIONS + u64::try_from(extension.len()).unwrap_or(0);
    file.write_all_at(&extension, EXTENSIONS)?;
    file.write_all_at(name, at)?;
    file.write_all_at(&at.to_be_bytes(), 8)?;
    file.write_all_at(&length(name.len()), 16)
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
