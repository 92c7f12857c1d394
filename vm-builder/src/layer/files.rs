//! Reads the contents of a tree: from cached archives, which stay open, and from files of a directory, of which few
//! are open at a time.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use neonvm_disk::tree::{SourceId, Sources};

/// Files of a directory that are open at a time.
const OPEN_LIMIT: usize = 32;

/// A file of the host, as it was when it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFile {
    pub path: PathBuf,
    pub device: u64,
    pub inode: u64,
    /// Bytes.
    pub size: u64,
    /// Last change: seconds and nanoseconds.
    pub modified: (i64, i64),
}

impl HostFile {
    pub fn new(path: PathBuf, metadata: &std::fs::Metadata) -> Self {
        Self {
            path,
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }

    fn open(&self) -> io::Result<File> {
        // Neither through a link, nor waiting for the other end of a pipe that took the file's place.
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        let mut options = File::options();
        options.read(true).custom_flags(flags.bits().cast_signed());
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", self.path.display()));
        let file = options.open(&self.path).map_err(named)?;
        let now = Self::new(PathBuf::new(), &file.metadata().map_err(named)?);
        if (now.device, now.inode, now.size, now.modified)
            != (self.device, self.inode, self.size, self.modified)
        {
            return Err(io::Error::other(format!("{} changed while it was read", self.path.display())));
        }
        Ok(file)
    }
}

/// The sources of a tree: first the archives, then the files.
#[derive(Debug, Default)]
pub struct LayerSources {
    archives: Vec<File>,
    files: Vec<HostFile>,
    open: Mutex<VecDeque<(usize, Arc<File>)>>,
}

impl LayerSources {
    /// Source 0 is the first archive, and so on.
    pub fn of_archives(archives: Vec<File>) -> Self {
        Self { archives, ..Self::default() }
    }

    /// Source 0 is the first file, and so on.
    pub fn of_files(files: Vec<HostFile>) -> Self {
        Self { files, ..Self::default() }
    }

    fn file(&self, index: usize) -> io::Result<Arc<File>> {
        let unknown = || io::Error::other(format!("unknown source {index}"));
        let file = self.files.get(index).ok_or_else(unknown)?;
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(position) = open.iter().position(|(opened, _)| *opened == index)
            && let Some(found) = open.remove(position)
        {
            let file = Arc::clone(&found.1);
            open.push_back(found);
            return Ok(file);
        }
        let file = Arc::new(file.open()?);
        if open.len() >= OPEN_LIMIT {
            open.pop_front();
        }
        open.push_back((index, Arc::clone(&file)));
        Ok(file)
    }
}

impl Sources for LayerSources {
    fn read_exact_at(&self, source: SourceId, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let index = usize::try_from(source.0).unwrap_or(usize::MAX);
        if let Some(archive) = self.archives.get(index) {
            return archive.read_exact_at(into, offset);
        }
        self.file(index.wrapping_sub(self.archives.len()))?.read_exact_at(into, offset)
    }
}
