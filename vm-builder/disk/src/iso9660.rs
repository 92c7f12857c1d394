//! Small read-only volumes: ISO 9660 (ECMA-119) with Rock Ridge, so that names, modes, owners and links survive.

mod name;
mod rock;
mod volume;

use crate::image::Memory;
use crate::tree::{Sources, Time, Tree};

/// What can be chosen of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Volume label, at most 32 bytes; written as it is.
    pub label: String,
    pub created: Time,
}

/// Why a tree cannot become a volume.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The label does not fit.
    #[error("the label `{0}` is longer than 32 bytes")]
    Label(String),
    /// The volume is larger than is sensible to hold in memory.
    #[error("the content of {needed} bytes is more than the limit of {limit}")]
    TooLarge {
        /// Size in bytes.
        needed: u64,
        /// Limit in bytes.
        limit: u64,
    },
    /// Something that the format cannot hold.
    #[error("{path}: {problem}")]
    Entry {
        path: String,
        /// What is wrong.
        problem: String,
    },
    /// Content cannot be read.
    #[error("{path}: {source}")]
    Read {
        path: String,
        /// Error of the content's source.
        source: std::io::Error,
    },
}

/// Makes a volume of a tree, at most 512 MiB. Extended attributes are left out, and fractions of seconds; times
/// are kept from 1900 to 2155. Hard links share content.
///
/// # Errors
/// If the tree does not fit or content cannot be read.
pub fn volume(tree: &Tree, sources: &dyn Sources, options: &Options) -> Result<Memory, Error> {
    if options.label.len() > 32 {
        return Err(Error::Label(options.label.clone()));
    }
    volume::make(tree, sources, options).map(Memory::from)
}
