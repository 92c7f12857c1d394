//! A stored memory, and the part of its file that the next QEMU has as memory instead of reading it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use neonvm_types::Bytes;

use super::StateError;
use super::layout::{Block, blocks};
use crate::installation::Version;
use crate::plan::{MachinePlan, base_memory_name};

/// The first QEMU with `mapped-ram`.
pub(super) const SINCE: Version = Version { major: 9, minor: 0, micro: 0 };
/// The first of which it is not known whether it leaves pages alone that are not in the bitmap.
const UNKNOWN: Version = Version { major: 11, minor: 0, micro: 0 };

/// A guest's memory and devices in a file.
#[derive(Debug)]
pub struct Stored {
    /// Bytes that it takes on its disk.
    pub bytes: Bytes,
    /// The QEMU that has written it.
    version: Version,
    /// Where the bitmap of the memory that is mapped is in the file, and what it was.
    bitmap: Option<(u64, Vec<u8>)>,
}

/// A file of the store that is the memory of a machine: what the guest writes stays in memory and does not change the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// Name of the file, in [`super::super::Resources::store`].
    pub name: String,
    /// Where the memory begins in it, in bytes.
    pub offset: u64,
}

impl Stored {
    pub(super) const fn new(bytes: Bytes, version: Version) -> Self {
        Self { bytes, version, bitmap: None }
    }

    pub(super) fn is_for(&self, version: Version) -> Result<(), StateError> {
        let Self { version: wrote, .. } = *self;
        if wrote == version { Ok(()) } else { Err(StateError::Version { wrote, reads: version }) }
    }

    /// Prepares the file for a machine of this plan that has it as memory ([`super::super::Resources::mapped`]): QEMU then reads none of the
    /// memory that is always there. `None` if that is not possible, and the file is as before.
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub fn map(&mut self, path: &Path, plan: &MachinePlan) -> io::Result<Option<Mapped>> {
        if self.version < SINCE || self.version >= UNKNOWN {
            return Ok(None);
        }
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let size = file.metadata()?.len();
        let found = blocks(size, |at, buffer| file.read_exact_at(buffer, at).is_ok());
        let name = base_memory_name(plan.architecture);
        let is_it = |block: &Block| block.name == name && block.length == plan.memory.min.get();
        let block = found.and_then(|blocks| blocks.into_iter().find(is_it));
        let (Some(block), Some(name)) = (block, path.file_name().and_then(|name| name.to_str())) else {
            return Ok(None);
        };
        let mut bitmap = vec![0; usize::try_from(block.bitmap_bytes()).map_err(io::Error::other)?];
        file.read_exact_at(&mut bitmap, block.bitmap)?;
        file.write_all_at(&vec![0; bitmap.len()], block.bitmap)?;
        self.bitmap = Some((block.bitmap, bitmap));
        Ok(Some(Mapped { name: name.to_owned(), offset: block.pages }))
    }

    /// Makes the file what it was before [`Stored::map`], so that QEMU reads all of it.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn unmap(&mut self, path: &Path) -> io::Result<()> {
        let Some((at, bitmap)) = self.bitmap.take() else { return Ok(()) };
        File::options().write(true).open(path)?.write_all_at(&bitmap, at)
    }
}
