//! Small read-only volumes: ISO 9660 (ECMA-119) with Rock Ridge, so that names, modes and owners survive.

mod name;
mod volume;

use crate::image::Memory;
use crate::tree::Tree;

/// Why a tree cannot become a volume.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the label `{0}` is longer than 32 bytes")]
    Label(String),
    #[error("the content of {needed} bytes is more than the limit of {limit}")]
    TooLarge {
        /// Size in bytes.
        needed: u64,
        /// Limit in bytes.
        limit: u64,
    },
    #[error("{path}: {problem}")]
    Entry { path: String, problem: String },
}

/// Makes a volume of directories and of files in memory, at most 512 MiB, with a label of at most 32 bytes. Times and
/// extended attributes are left out. Hard links share content.
pub fn volume(tree: &Tree, label: &str) -> Result<Memory, Error> {
    if label.len() > 32 {
        return Err(Error::Label(label.to_owned()));
    }
    volume::make(tree, label).map(Memory::from)
}
