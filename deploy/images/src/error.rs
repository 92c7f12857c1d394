//! Why the images of a release cannot be read.

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The layout cannot be read or written.
    #[error(transparent)]
    Store(#[from] neonvm_builder::source::Error),
    #[error("{}: {problem}", path.display())]
    Release { path: PathBuf, problem: String },
}
