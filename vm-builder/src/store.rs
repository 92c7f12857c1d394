//! The local image store: an OCI image layout directory that several processes may use at a time.
//!
//! ```text
//! oci-layout, index.json       by the OCI image specification 1.1; names are in the annotation
//!                              org.opencontainers.image.ref.name
//! blobs/sha256/<digest>        manifests, configurations, layers
//! temporary/                   what is being written
//! .lock                        held, shared, while blobs are read or added; exclusively while the index is changed
//! ```
//!
//! Blobs and the index appear by renaming, so that other programs may read them at any time. A name belongs to one
//! image: an image that loses its last name stays until it is pruned.

mod image;
mod index;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use image::{Blob, BlobContent, CONFIG, Descriptor, Image, LAYER, MANIFEST};

use crate::cache::{DOCUMENT_LIMIT, Temporary, read_limited, remove_leftovers};
use crate::reference::{Digest, Hasher, Reference};
use crate::registry::{Document, ImageConfig, Manifest};
use crate::source::Error;

/// How long another process may hold the lock: it copies no content while it does.
const LOCK_DEADLINE: Duration = Duration::from_secs(60);
/// Fewest digits of a digest that name an image.
const DIGITS: usize = 12;

#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name; none if the name went to a newer image.
    pub reference: Option<Reference>,
    pub digest: Digest,
    /// Bytes of manifest, configuration and layers.
    pub size: u64,
    /// When it was made, RFC 3339, by the image's own record.
    pub created: Option<String>,
    /// When its manifest was stored here, RFC 3339.
    pub stored: Option<String>,
    /// `linux/amd64`.
    pub platform: String,
}

impl Entry {
    /// When it was made by its own record; when it was stored, for an image without such a time: a disk of a directory
    /// has none, so that equal input gives equal bytes.
    pub fn made(&self) -> Option<jiff::Timestamp> {
        let time = |text: &Option<String>| text.as_deref()?.parse::<jiff::Timestamp>().ok();
        // What reproducible builds write instead of a time.
        let own = time(&self.created).filter(|time| *time != jiff::Timestamp::UNIX_EPOCH);
        own.or_else(|| time(&self.stored))
    }
}

impl Store {
    /// Opens a store; makes the directory if it is missing.
    pub fn open(root: &Path) -> Result<Self, Error> {
        let store = Self { root: root.to_path_buf() };
        for directory in ["blobs/sha256", "temporary"] {
            let path = root.join(directory);
            // Private images are in it, too.
            let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
            made.map_err(|error| Error::io("create", &path, error))?;
        }
        remove_leftovers(&root.join("temporary"));
        let marker = root.join("oci-layout");
        match read_limited(&marker, DOCUMENT_LIMIT) {
            Ok(bytes) => index::check_marker(&bytes, &marker)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let _adding = store.lock(false)?;
                store.write(br#"{"imageLayoutVersion":"1.0.0"}"#, &marker)?;
            }
            Err(error) => return Err(Error::io("read", &marker, error)),
        }
        Ok(store)
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Adds an image under a name, which a former image loses. Returns its digest.
    pub fn put(&self, image: &Image, reference: &Reference) -> Result<Digest, Error> {
        let digest = image.digest();
        let adding = self.lock(false)?;
        for blob in image.layers.iter().chain([&image.config]) {
            self.put_blob(blob)?;
        }
        self.put_blob(&Blob::bytes(&image.media_type, image.manifest.clone()))?;
        drop(adding);
        let _changing = self.lock(true)?;
        let mut index = index::Index::read(&self.root)?;
        let name = named(reference);
        index.add(&image.media_type, digest, image.manifest.len() as u64, &name);
        // A prune between the two locks may have taken what was just added.
        for blob in image.layers.iter().chain([&image.config]) {
            self.put_blob(blob)?;
        }
        self.put_blob(&Blob::bytes(&image.media_type, image.manifest.clone()))?;
        self.write(&index.bytes()?, &self.root.join("index.json"))?;
        Ok(digest)
    }

    /// Finds an image by reference or by digest (or by at least 12 digits of it).
    pub fn get(&self, name: &str) -> Result<Image, Error> {
        let _reading = self.lock(false)?;
        let index = index::Index::read(&self.root)?;
        let digest = self.find(&index, name)?;
        let (bytes, media_type) = (self.document(digest)?, index.media_type(digest));
        let manifest = self.manifest(digest, &bytes, &media_type)?;
        let blob = |descriptor: Descriptor| {
            let path = self.blob_path(descriptor.digest);
            Blob { descriptor, content: BlobContent::File(path) }
        };
        Ok(Image {
            manifest: bytes,
            media_type,
            config: blob(manifest.config),
            layers: manifest.layers.into_iter().map(blob).collect(),
        })
    }

    /// All images, by name; then those without a name.
    pub fn list(&self) -> Result<Vec<Entry>, Error> {
        let _reading = self.lock(false)?;
        let index = index::Index::read(&self.root)?;
        let mut entries = Vec::new();
        for (digest, name) in index.images() {
            entries.push(self.entry(digest, name, &index)?);
        }
        let key = |entry: &Entry| (entry.reference.is_none(), entry.reference.clone(), entry.digest);
        entries.sort_by_cached_key(key);
        Ok(entries)
    }

    /// Removes a name, and the image if it was its last one; or an image with all its names, given its digest. Blobs
    /// that no other image has go with it. Returns what was removed.
    pub fn remove(&self, name: &str) -> Result<Vec<Entry>, Error> {
        let _changing = self.lock(true)?;
        let mut index = index::Index::read(&self.root)?;
        let (digest, only, removed) = self.chosen(&index, name)?;
        index.remove(digest, only.as_deref());
        self.write(&index.bytes()?, &self.root.join("index.json"))?;
        self.sweep(&index)?;
        Ok(removed)
    }

    /// What [`Self::remove`] would remove.
    pub fn removal(&self, name: &str) -> Result<Vec<Entry>, Error> {
        let _reading = self.lock(false)?;
        Ok(self.chosen(&index::Index::read(&self.root)?, name)?.2)
    }

    /// An image with the name that alone is meant, and its entries. A name that is only one of several is removed by itself.
    fn chosen(
        &self,
        index: &index::Index,
        name: &str,
    ) -> Result<(Digest, Option<String>, Vec<Entry>), Error> {
        let digest = self.find(index, name)?;
        let by_name = name.parse::<Reference>().ok().map(|reference| named(&reference));
        let only = by_name.filter(|name| index.digest_of(name) == Some(digest));
        let mut entries = Vec::new();
        for (image, has) in index.images() {
            if image == digest && only.as_deref().is_none_or(|name| has == Some(name)) {
                entries.push(self.entry(digest, has, index)?);
            }
        }
        Ok((digest, only, entries))
    }

    /// Removes images without a name, and blobs that no image has. Returns the bytes that became free.
    pub fn prune(&self) -> Result<u64, Error> {
        self.prune_except(&|_| false)
    }

    /// As [`Self::prune`]; images with digests that `keep` accepts stay.
    pub fn prune_except(&self, keep: &dyn Fn(Digest) -> bool) -> Result<u64, Error> {
        let _changing = self.lock(true)?;
        let mut index = index::Index::read(&self.root)?;
        if index.remove_unnamed(keep) {
            self.write(&index.bytes()?, &self.root.join("index.json"))?;
        }
        self.sweep(&index)
    }

    /// Removes blobs that the index does not lead to. The lock is held exclusively: no process is adding any.
    fn sweep(&self, index: &index::Index) -> Result<u64, Error> {
        let mut used = BTreeSet::new();
        for (digest, _) in index.images() {
            used.insert(digest.hex());
            let manifest = self.manifest(digest, &self.document(digest)?, &index.media_type(digest))?;
            used.extend(manifest.layers.iter().chain([&manifest.config]).map(|blob| blob.digest.hex()));
        }
        let mut freed = 0;
        for directory in ["blobs/sha256", "temporary"] {
            let path = self.root.join(directory);
            let entries = std::fs::read_dir(&path).map_err(|error| Error::io("read", &path, error))?;
            for entry in entries.flatten() {
                if used.contains(entry.file_name().to_string_lossy().as_ref()) {
                    continue;
                }
                let path = entry.path();
                let length = entry.metadata().map_or(0, |metadata| metadata.len());
                match std::fs::remove_file(&path) {
                    Ok(()) => freed += length,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(Error::io("remove", &path, error)),
                }
            }
        }
        Ok(freed)
    }

    fn entry(&self, digest: Digest, name: Option<&str>, index: &index::Index) -> Result<Entry, Error> {
        let bytes = self.document(digest)?;
        let manifest = self.manifest(digest, &bytes, &index.media_type(digest))?;
        let what = format!("configuration of {digest}");
        let config = ImageConfig::parse(&self.document(manifest.config.digest)?, &what)?;
        let blobs: u64 = manifest.layers.iter().chain([&manifest.config]).map(|blob| blob.size).sum();
        Ok(Entry {
            reference: name.and_then(|name| name.parse().ok()),
            digest,
            size: blobs.saturating_add(bytes.len() as u64),
            created: config.created().map(str::to_owned),
            stored: self.stored(digest),
            platform: config.platform(),
        })
    }

    /// When a blob was stored.
    fn stored(&self, digest: Digest) -> Option<String> {
        let time = std::fs::metadata(self.blob_path(digest)).and_then(|file| file.modified()).ok()?;
        jiff::Timestamp::try_from(time).ok().map(|time| time.to_string())
    }

    fn find(&self, index: &index::Index, name: &str) -> Result<Digest, Error> {
        let hex = name.strip_prefix("sha256:").unwrap_or(name);
        let is_digest = hex.len() >= DIGITS && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
        let mut found: BTreeSet<Digest> = BTreeSet::new();
        if let Ok(reference) = name.parse::<Reference>() {
            let by_name = index.digest_of(&named(&reference));
            found.extend(by_name.filter(|digest| reference.digest().is_none_or(|wanted| wanted == *digest)));
            if found.is_empty()
                && let Some(wanted) = reference.digest()
            {
                found.extend(index.images().map(|(digest, _)| digest).filter(|digest| *digest == wanted));
            }
        }
        if found.is_empty() && is_digest {
            let fitting = index.images().map(|(digest, _)| digest);
            found.extend(fitting.filter(|digest| digest.hex().starts_with(hex)));
        }
        let place = self.root.clone();
        let available = || index.images().filter_map(|(_, name)| name.map(str::to_owned)).collect();
        match (found.len(), found.first()) {
            (1, Some(digest)) => Ok(*digest),
            (0, _) => Err(Error::ImageNotFound { place, name: name.into(), available: available() }),
            _ => {
                let available = found.iter().map(ToString::to_string).collect();
                Err(Error::Ambiguous { place, available })
            }
        }
    }

    fn blob_path(&self, digest: Digest) -> PathBuf {
        self.root.join("blobs/sha256").join(digest.hex())
    }

    /// A small blob, checked.
    fn document(&self, digest: Digest) -> Result<Vec<u8>, Error> {
        let path = self.blob_path(digest);
        let bytes = read_limited(&path, DOCUMENT_LIMIT).map_err(|error| Error::io("read", &path, error))?;
        let actual = Digest::from_bytes(&bytes);
        if actual != digest {
            let what = path.display().to_string();
            return Err(Error::DigestMismatch { what, expected: digest, actual });
        }
        Ok(bytes)
    }

    fn manifest(&self, digest: Digest, bytes: &[u8], media_type: &str) -> Result<Manifest, Error> {
        let what = format!("manifest {digest}");
        match Document::parse(bytes, media_type, &what)? {
            Document::Manifest(manifest) => Ok(manifest),
            Document::Index(_) => Err(Error::MediaType { what, media_type: media_type.into() }),
        }
    }

    /// Copies a blob, unless it is here; checks it on the way.
    fn put_blob(&self, blob: &Blob) -> Result<(), Error> {
        let path = self.blob_path(blob.descriptor.digest);
        if std::fs::metadata(&path).is_ok_and(|metadata| metadata.len() == blob.descriptor.size) {
            return Ok(());
        }
        let mut temporary = Temporary::new(&self.root.join("temporary"))?;
        let mut hasher = Hasher::default();
        let (what, mut reader): (String, Box<dyn Read + '_>) = match &blob.content {
            BlobContent::Bytes(bytes) => ("blob".into(), Box::new(bytes.as_slice())),
            BlobContent::File(from) => {
                let file = File::open(from).map_err(|error| Error::io("open", from, error))?;
                (from.display().to_string(), Box::new(file))
            }
        };
        let mut buffer = vec![0; 1 << 17];
        loop {
            let count = match reader.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Error::io("read", Path::new(&what), error)),
            };
            let bytes = buffer.get(..count).unwrap_or_default();
            hasher.update(bytes);
            temporary.write(bytes)?;
        }
        blob.descriptor.check(&what, hasher)?;
        temporary.rename(&path).map(drop)
    }

    fn write(&self, bytes: &[u8], path: &Path) -> Result<(), Error> {
        let mut temporary = Temporary::new(&self.root.join("temporary"))?;
        temporary.write(bytes)?;
        temporary.rename(path).map(drop)
    }

    fn lock(&self, exclusive: bool) -> Result<File, Error> {
        let path = self.root.join(".lock");
        let file = File::options().write(true).create(true).truncate(false).open(&path);
        let file = match file {
            // A store that came with a package is read-only for this user, so no process of this user changes it.
            Err(error) if !exclusive && is_read_only(&error) => File::open(&self.root),
            other => other,
        };
        let file = file.map_err(|error| Error::io("create", &path, error))?;
        let deadline = Instant::now() + LOCK_DEADLINE;
        loop {
            let locked = if exclusive { file.try_lock() } else { file.try_lock_shared() };
            match locked {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(TryLockError::WouldBlock) => return Err(Error::Locked(path)),
                Err(TryLockError::Error(error)) => return Err(Error::io("lock", &path, error)),
            }
        }
    }
}

fn is_read_only(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

/// A name as it is stored: without a digest, since the store maps it to one.
fn named(reference: &Reference) -> String {
    match reference.tag() {
        Some(tag) => format!("{}/{}:{tag}", reference.registry(), reference.repository()),
        None => reference.to_string(),
    }
}
