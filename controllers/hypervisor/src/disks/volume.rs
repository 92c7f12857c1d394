//! Volumes of files, read-only: ISO 9660 with names and modes as they are.

use std::path::Path;
use std::sync::Arc;

use neonvm_disk::iso9660;
use neonvm_disk::raw;
use neonvm_disk::tree::{Content, Inode, Kind, Metadata, Origin, Piece, Tree};

use super::error::DiskError;
use super::whole;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeFile {
    /// Path in the volume; directories on the way are made.
    pub path: String,
    /// Permission bits.
    pub mode: u16,
    pub content: Vec<u8>,
}

/// Creates a volume, always from the start: content may have changed. The same files give the same bytes.
///
/// # Errors
/// If a path is none or everything is too large.
pub fn volume(path: &Path, label: &str, files: &[VolumeFile]) -> Result<(), DiskError> {
    let mut tree = Tree::new();
    for file in files {
        let wrong = || DiskError::content(path, format!("`{}` is not the path of a file in it", file.path));
        let directory = Path::new(&file.path).parent().and_then(Path::to_str).unwrap_or_default();
        let metadata = Metadata { mode: 0o755, ..Metadata::default() };
        tree.make_directories(directory.as_bytes(), &metadata).ok_or_else(wrong)?;
        let name = Path::new(&file.path).file_name().ok_or_else(wrong)?;
        let directory_like = tree.lookup(file.path.as_bytes()).is_some();
        if directory_like || name.len() > 255 || file.path.contains('\0') || file.path.ends_with('/') {
            return Err(wrong());
        }
        tree.insert(file.path.as_bytes(), inode(file)).ok_or_else(wrong)?;
    }
    let image = iso9660::volume(&tree, label).map_err(|error| DiskError::content(path, error))?;
    whole::make(path, |file, _| raw::write(&image, file, &|_| {}).map_err(DiskError::io("write", path)))
}

fn inode(file: &VolumeFile) -> Inode {
    let length = u64::try_from(file.content.len()).unwrap_or(u64::MAX);
    let bytes: Arc<[u8]> = file.content.as_slice().into();
    let piece = Piece { at: 0, length, origin: Origin::Memory(bytes) };
    let pieces = if length == 0 { Vec::new() } else { vec![piece] };
    let metadata = Metadata { mode: file.mode & 0o7777, ..Metadata::default() };
    Inode { metadata, kind: Kind::File(Content { length, pieces }) }
}
