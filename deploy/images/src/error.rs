//! Why the images of a release cannot be read.

use std::path::PathBuf;

/// Failure of reading images.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The layout cannot be read or written.
    #[error(transparent)]
    Store(#[from] neonvm_builder::source::Error),
    /// A directory does not have the images of a release.
    #[error("{}: {problem}", path.display())]
    Release {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
}
