//! Images that machines share.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use neonvm_disk::image::Image as _;
use neonvm_disk::qcow2::{self, Reader};
use neonvm_disk::raw;
use neonvm_types::Bytes;

use super::error::DiskError;
use crate::plan::BaseFormat;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    pub path: PathBuf,
    pub format: BaseFormat,
    pub size: Bytes,
}

/// Reads an image: what format it has, and whether its head and first table are sound.
///
/// # Errors
/// If it is missing, is not an image, or uses what is not supported.
pub fn inspect(path: &Path) -> Result<Base, DiskError> {
    let file = File::open(path).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => DiskError::Missing(path.to_owned()),
        _ => DiskError::io("open", path)(source),
    })?;
    let unusable = |reason: String| DiskError::Image { path: path.to_owned(), reason };
    if !file.metadata().map_err(DiskError::io("look at", path))?.is_file() {
        return Err(unusable("it is not a regular file".to_owned()));
    }
    let source = raw::Reader::open(file).map_err(DiskError::io("read", path))?;
    let length = source.length();
    match Reader::open(source) {
        Ok(reader) => {
            Ok(Base { path: path.to_owned(), format: BaseFormat::Qcow2, size: Bytes::new(reader.length()) })
        }
        Err(qcow2::Error::NotQcow2) if length == 0 || !length.is_multiple_of(512) => Err(unusable(format!(
            "it is no qcow2 file, and {length} bytes are no whole sectors of a raw disk"
        ))),
        Err(qcow2::Error::NotQcow2) => {
            Ok(Base { path: path.to_owned(), format: BaseFormat::Raw, size: Bytes::new(length) })
        }
        Err(error) => Err(unusable(error.to_string())),
    }
}
