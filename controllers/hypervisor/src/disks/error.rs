//! Why there is no disk.

use std::io;
use std::path::PathBuf;

/// Why there is no disk. Each names the file.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The image is not there.
    #[error("there is no image {}", .0.display())]
    Missing(PathBuf),
    /// The image cannot be used.
    #[error("the image {} cannot be used: {reason}", path.display())]
    Image {
        path: PathBuf,
        /// Why it is unusable.
        reason: String,
    },
    /// Reading or writing failed.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// Error of the file system.
        source: io::Error,
    },
    /// Such a disk cannot be.
    #[error("cannot make {}: {reason}", path.display())]
    Content {
        path: PathBuf,
        /// Why it is unusable.
        reason: String,
    },
}

impl DiskError {
    /// Names what failed.
    pub(super) fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { what, path, source }
    }

    /// The content cannot be written, for this reason.
    pub(super) fn content(path: impl Into<PathBuf>, reason: impl std::fmt::Display) -> Self {
        Self::Content { path: path.into(), reason: reason.to_string() }
    }
}
