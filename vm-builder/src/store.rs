//! The local image store: an OCI image layout directory that several processes may use at a time.

mod image;

use std::path::{Path, PathBuf};

pub use image::{Blob, BlobContent, CONFIG, Descriptor, Image, LAYER, MANIFEST};

use crate::reference::{Digest, Reference};
use crate::source::Error;

/// An image store.
#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
}

/// An image in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name; none if the name went to a newer image.
    pub reference: Option<Reference>,
    /// Digest of the manifest.
    pub digest: Digest,
    /// Bytes of manifest, configuration and layers.
    pub size: u64,
    /// When it was made, RFC 3339, as the image says.
    pub created: Option<String>,
    /// `linux/amd64`.
    pub platform: String,
}

impl Store {
    /// Opens a store; makes the directory if it is missing.
    ///
    /// # Errors
    /// If it cannot be made, or is no image layout.
    pub fn open(root: &Path) -> Result<Self, Error> {
        std::fs::create_dir_all(root).map_err(|error| Error::io("create", root, error))?;
        Ok(Self { root: root.to_path_buf() })
    }

    /// Where it is.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Adds an image under a name, which a former image loses. Returns its digest.
    ///
    /// # Errors
    /// If a blob cannot be read or is not as its digest says, or the store cannot be written.
    pub fn put(&self, image: &Image, reference: &Reference) -> Result<Digest, Error> {
        let _ = (image, reference);
        Err(Error::NotCached("image".into()))
    }

    /// Finds an image by reference or by digest (or a part of at least 12 digits of it).
    ///
    /// # Errors
    /// If there is none.
    pub fn get(&self, name: &str) -> Result<Image, Error> {
        Err(Error::NotCached(name.into()))
    }

    /// All images, by name.
    ///
    /// # Errors
    /// If the index cannot be read.
    pub fn list(&self) -> Result<Vec<Entry>, Error> {
        Ok(Vec::new())
    }

    /// Removes a name; or an image with all its names, given its digest. Blobs that no other image has go with it.
    ///
    /// # Errors
    /// If there is none.
    pub fn remove(&self, name: &str) -> Result<Vec<Entry>, Error> {
        Err(Error::NotCached(name.into()))
    }

    /// Removes images without a name and blobs that no image has. Returns the bytes that became free.
    ///
    /// # Errors
    /// If something cannot be removed.
    pub fn prune(&self) -> Result<u64, Error> {
        Ok(0)
    }
}
