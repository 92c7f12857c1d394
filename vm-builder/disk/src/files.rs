//! Reads files of an ext4 file system out of an image, by the independent reader `ext4-view`.

use std::io;

use ext4_view::{Ext4, Ext4Error, Ext4Read};

use crate::image::Image;
use crate::tree::Time;

/// What an entry of a directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    Directory,
    File,
    /// A symbolic link.
    Symlink,
    CharacterDevice,
    BlockDevice,
    /// A named pipe.
    Fifo,
    /// A Unix domain socket.
    Socket,
}

/// The metadata of a file, available without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub kind: Type,
    /// Permission bits with set-user-ID, set-group-ID and sticky: 0–0o7777.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub length: u64,
    /// Last change of the content.
    pub modified: Time,
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name, any bytes.
    pub name: Vec<u8>,
    pub status: Status,
}

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// From the reader: no such file, not a file system, corrupt.
    #[error("{path}: {source}")]
    Read {
        path: String,
        /// The reader's error.
        source: Box<Ext4Error>,
    },
    /// The path or something in it cannot be named.
    #[error("{0}: not a path of an ext4 file system")]
    Path(String),
    /// The file is longer than the caller's limit.
    #[error("{path}: {length} bytes are more than the limit of {limit}")]
    TooLong {
        path: String,
        /// Size of the file in bytes.
        length: u64,
        /// What was allowed, in bytes.
        limit: u64,
    },
}

/// An ext4 file system in an image.
#[derive(Debug)]
pub struct FileSystem {
    inner: Ext4,
}

/// Gives the reader bytes of an image.
struct Source<I>(I);

impl<I: Image> Ext4Read for Source<I> {
    fn read(
        &mut self,
        start: u64,
        into: &mut [u8],
    ) -> Result<(), Box<dyn core::error::Error + Send + Sync + 'static>> {
        self.0.read_at(start, into).map_err(|error: io::Error| error.into())
    }
}

impl FileSystem {
    /// Takes an image as an ext4 file system.
    ///
    /// # Errors
    /// If it is none, is corrupt, or has features that the reader does not support.
    pub fn open(image: impl Image + 'static) -> Result<Self, Error> {
        let inner = Ext4::load(Box::new(Source(image))).map_err(|source| read(b"/", source))?;
        Ok(Self { inner })
    }

    /// The content of a file. Symbolic links are followed within the file system.
    ///
    /// # Errors
    /// If there is none, it is longer than `limit` bytes, or it cannot be read.
    pub fn read(&self, path: &[u8], limit: u64) -> Result<Vec<u8>, Error> {
        let at = checked(path)?;
        let length = self.inner.metadata(at).map_err(|source| read(path, source))?.len();
        if length > limit {
            return Err(Error::TooLong { path: shown(path), length, limit });
        }
        self.inner.read(at).map_err(|source| read(path, source))
    }

    /// Target of a symbolic link.
    ///
    /// # Errors
    /// If there is none or it cannot be read.
    pub fn read_link(&self, path: &[u8]) -> Result<Vec<u8>, Error> {
        let target = self.inner.read_link(checked(path)?).map_err(|source| read(path, source))?;
        Ok(<ext4_view::PathBuf as AsRef<[u8]>>::as_ref(&target).to_vec())
    }

    /// What a path leads to; a symbolic link itself, not its target.
    ///
    /// # Errors
    /// If there is nothing or it cannot be read.
    pub fn status(&self, path: &[u8]) -> Result<Status, Error> {
        let metadata = self.inner.symlink_metadata(checked(path)?).map_err(|source| read(path, source))?;
        Ok(status(&metadata))
    }

    /// The names of a directory without `.` and `..`, sorted.
    ///
    /// # Errors
    /// If there is none or it cannot be read.
    pub fn list(&self, path: &[u8]) -> Result<Vec<Entry>, Error> {
        let entries = self.inner.read_dir(checked(path)?).map_err(|source| read(path, source))?;
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|source| read(path, source))?;
            let name = entry.file_name().as_ref().to_vec();
            if name == b"." || name == b".." {
                continue;
            }
            let metadata = entry.metadata().map_err(|source| read(path, source))?;
            found.push(Entry { name, status: status(&metadata) });
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }
}

/// A path as the reader takes it.
fn checked(path: &[u8]) -> Result<ext4_view::Path<'_>, Error> {
    ext4_view::Path::try_from(path).map_err(|_| Error::Path(shown(path)))
}

fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

/// An error of the reader with its path.
fn read(path: &[u8], source: Ext4Error) -> Error {
    Error::Read { path: shown(path), source: Box::new(source) }
}

/// The reader's metadata in our form.
fn status(metadata: &ext4_view::Metadata) -> Status {
    let kind = match metadata.file_type() {
        ext4_view::FileType::Directory => Type::Directory,
        ext4_view::FileType::Symlink => Type::Symlink,
        ext4_view::FileType::CharacterDevice => Type::CharacterDevice,
        ext4_view::FileType::BlockDevice => Type::BlockDevice,
        ext4_view::FileType::Fifo => Type::Fifo,
        ext4_view::FileType::Socket => Type::Socket,
        _ => Type::File,
    };
    let time = metadata.modified();
    Status {
        kind,
        mode: metadata.mode() & 0o7777,
        uid: metadata.uid(),
        gid: metadata.gid(),
        length: metadata.len(),
        modified: Time { seconds: time.seconds(), nanoseconds: time.nanoseconds() },
    }
}
