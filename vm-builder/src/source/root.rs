//! A directory of the host as a tree. Links are not followed; what is mounted in it belongs to it.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs::{File, Metadata as FileMetadata};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use neonvm_disk::tree::{Content, Inode, InodeId, Kind, Metadata, Origin, Piece, SourceId, Time, Tree};
use rustix::fs::SeekFrom;

use super::{Error, Options, Owner};
use crate::layer::{HostFile, LayerSources};

/// What stands before the name of an attribute that describes the host: no file system stores such a name, so it is left out, and
/// counted, with what ext4 cannot store.
pub(crate) const HOST: &str = "host:";
/// Attributes that describe the host and not the tree.
const OF_THE_HOST: [&[u8]; 3] = [b"security.selinux", b"security.ima", b"security.evm"];
/// Largest attribute and list of attributes that Linux has, in bytes.
const ATTRIBUTE_LIMIT: usize = 1 << 16;

struct Walk<'a> {
    options: &'a Options,
    root: &'a Path,
    tree: Tree,
    files: Vec<HostFile>,
    /// Names of files that have several: device and inode number.
    linked: HashMap<(u64, u64), InodeId>,
    entries: u64,
    bytes: u64,
    buffer: Vec<u8>,
}

/// Reads a directory.
pub(super) fn walk(root: &Path, options: &Options) -> Result<(Tree, LayerSources), Error> {
    let metadata = std::fs::metadata(root).map_err(|error| Error::io("read", root, error))?;
    if !metadata.is_dir() {
        return Err(Error::io("read", root, io::ErrorKind::NotADirectory.into()));
    }
    let mut walk = Walk {
        options,
        root,
        tree: Tree::new(),
        files: Vec::new(),
        linked: HashMap::new(),
        entries: 0,
        bytes: 0,
        buffer: vec![0; ATTRIBUTE_LIMIT],
    };
    let own = walk.metadata(root, &metadata)?;
    let top = walk.tree.root();
    if let Some(inode) = walk.tree.get_mut(top) {
        inode.metadata = own;
    }
    let mut directories = vec![(root.to_path_buf(), top)];
    while let Some((path, id)) = directories.pop() {
        let mut entries = std::fs::read_dir(&path)
            .and_then(Iterator::collect::<io::Result<Vec<_>>>)
            .map_err(|error| Error::io("read", &path, error))?;
        // In an order that does not depend on the file system.
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            let metadata = entry.metadata().map_err(|error| Error::io("read", &path, error))?;
            let child = walk.inode(&path, &metadata)?;
            walk.tree.link(id, entry.file_name().as_bytes(), child);
            if metadata.is_dir() {
                directories.push((path, child));
            }
        }
    }
    Ok((walk.tree, LayerSources::of_files(walk.files)))
}

impl Walk<'_> {
    fn inode(&mut self, path: &Path, metadata: &FileMetadata) -> Result<InodeId, Error> {
        self.charge(metadata)?;
        let key = (metadata.dev(), metadata.ino());
        let may_be_linked = metadata.nlink() > 1 && !metadata.is_dir();
        if may_be_linked && let Some(id) = self.linked.get(&key) {
            return Ok(*id);
        }
        let inode = Inode { kind: self.kind(path, metadata)?, metadata: self.metadata(path, metadata)? };
        let id = self
            .tree
            .add(inode)
            .ok_or_else(|| self.over("number of files", u64::from(u32::MAX), "files", None))?;
        if may_be_linked {
            self.linked.insert(key, id);
        }
        Ok(id)
    }

    fn charge(&mut self, metadata: &FileMetadata) -> Result<(), Error> {
        let limits = &self.options.limits;
        self.entries += 1;
        if self.entries > limits.entries {
            return Err(self.over("number of files", limits.entries, "files", Some("--max-entries")));
        }
        if metadata.is_file() {
            self.bytes =
                self.bytes.saturating_add(metadata.blocks().saturating_mul(512).min(metadata.size()));
        }
        if self.bytes > limits.bytes {
            return Err(self.over("content", limits.bytes, "bytes", Some("--max-bytes")));
        }
        Ok(())
    }

    fn over(&self, part: &str, limit: u64, unit: &'static str, flag: Option<&'static str>) -> Error {
        Error::Limit { what: format!("{}: {part}", self.root.display()), limit, unit, flag }
    }

    fn kind(&mut self, path: &Path, metadata: &FileMetadata) -> Result<Kind, Error> {
        let kind = metadata.file_type();
        let (major, minor) = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
        Ok(if kind.is_dir() {
            Kind::Directory(BTreeMap::new())
        } else if kind.is_symlink() {
            let target = std::fs::read_link(path).map_err(|error| Error::io("read", path, error))?;
            Kind::Symlink(target.into_os_string().into_vec())
        } else if kind.is_char_device() {
            Kind::CharacterDevice { major, minor }
        } else if kind.is_block_device() {
            Kind::BlockDevice { major, minor }
        } else if kind.is_fifo() {
            Kind::Fifo
        } else if kind.is_socket() {
            Kind::Socket
        } else {
            self.file(path, metadata)?
        })
    }

    fn file(&mut self, path: &Path, metadata: &FileMetadata) -> Result<Kind, Error> {
        let length = metadata.size();
        if length == 0 {
            return Ok(Kind::File(Content::default()));
        }
        let full = || self.over("number of files", u64::from(u32::MAX), "files", None);
        let source = SourceId(u32::try_from(self.files.len()).map_err(|_| full())?);
        let ranges = if metadata.blocks().saturating_mul(512) < length {
            data_ranges(path, length).map_err(|error| Error::io("read", path, error))?
        } else {
            vec![(0, length)]
        };
        self.files.push(HostFile::new(path.to_path_buf(), metadata));
        let piece = |(at, length)| Piece { at, length, origin: Origin::Source { source, offset: at } };
        Ok(Kind::File(Content { length, pieces: ranges.into_iter().map(piece).collect() }))
    }

    fn metadata(&mut self, path: &Path, metadata: &FileMetadata) -> Result<Metadata, Error> {
        let (uid, gid) = match self.options.owner {
            Owner::Keep => (metadata.uid(), metadata.gid()),
            Owner::Root => (0, 0),
        };
        Ok(Metadata {
            mode: u16::try_from(metadata.mode() & 0o7777).unwrap_or_default(),
            uid,
            gid,
            modified: Time {
                seconds: metadata.mtime(),
                nanoseconds: u32::try_from(metadata.mtime_nsec()).unwrap_or_default(),
            },
            xattrs: attributes(path, &mut self.buffer)
                .map_err(|error| Error::io("read attributes of", path, error))?,
        })
    }
}

/// The attributes of a file itself, also of a symbolic link. `buffer` has [`ATTRIBUTE_LIMIT`] bytes.
fn attributes(path: &Path, buffer: &mut [u8]) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    use rustix::io::Errno;
    let length = match rustix::fs::llistxattr(path, &mut *buffer) {
        Ok(length) => length,
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => 0,
        Err(error) => return Err(error.into()),
    };
    let names = buffer.get(..length).unwrap_or_default().to_vec();
    let mut found = BTreeMap::new();
    for name in names.split(|byte| *byte == 0) {
        if name.is_empty() {
            continue;
        }
        if OF_THE_HOST.contains(&name) {
            found.insert([HOST.as_bytes(), name].concat(), Vec::new());
            continue;
        }
        match rustix::fs::lgetxattr(path, OsStr::from_bytes(name), &mut *buffer) {
            Ok(length) => {
                found.insert(name.to_vec(), buffer.get(..length).unwrap_or_default().to_vec());
            }
            // Listed for every user, readable for root only, such as `trusted.*`; or of a server that does not have it.
            Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}

/// The parts of a sparse file that are not holes.
fn data_ranges(path: &Path, length: u64) -> io::Result<Vec<(u64, u64)>> {
    let file = File::open(path)?;
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < length {
        let start = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
            Ok(start) => start,
            // Nothing but a hole up to the end.
            Err(rustix::io::Errno::NXIO) => break,
            Err(rustix::io::Errno::INVAL) => return Ok(vec![(0, length)]),
            Err(error) => return Err(error.into()),
        };
        let end = rustix::fs::seek(&file, SeekFrom::Hole(start))?.min(length);
        if start >= length || end <= start {
            break;
        }
        ranges.push((start, end - start));
        at = end;
    }
    Ok(ranges)
}
