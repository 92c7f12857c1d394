//! Reads the headers of an uncompressed tar, one entry at a time, and skips the contents.
//!
//! The `tar` crate (0.4.46) does not read what images need: binary extended attributes whose value has a newline (file capabilities),
//! sparse files in the formats of POSIX archives, and it keeps long names of any length in memory. `tests/forms.rs` proves the first two.

use std::collections::BTreeMap;
use std::io::{BufReader, Read, Seek, SeekFrom};

use neonvm_disk::tree::Time;

use super::fields::{BLOCK, Header, text};
use super::pax::Extended;
use super::sparse::{self, Run};
use crate::source::Error;

/// Longest extended header or long name, in bytes.
const EXTENSION_LIMIT: u64 = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryKind {
    File {
        /// Bytes, with holes.
        length: u64,
        /// Ascending, without overlap.
        runs: Vec<Run>,
    },
    /// Another name of what [`Entry::link`] names.
    HardLink,
    /// A symbolic link to [`Entry::link`].
    Symlink,
    CharacterDevice(u32, u32),
    BlockDevice(u32, u32),
    Directory,
    Fifo,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// As in the archive: any bytes but NUL.
    pub path: Vec<u8>,
    /// Target of a link; empty for others.
    pub link: Vec<u8>,
    pub kind: EntryKind,
    /// 0–0o7777.
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub modified: Time,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Whether a file begins as a tar does; one block of zeros may be before the first header.
pub(crate) fn is_header(head: &[u8]) -> bool {
    let mut blocks = head.as_chunks::<BLOCK>().0.iter();
    let is_zero = |block: &&[u8; BLOCK]| block.iter().all(|byte| *byte == 0);
    let first = blocks.next();
    let first = if first.is_some_and(|block| is_zero(&block)) { blocks.next() } else { first };
    first.is_some_and(|block| Header::checked(block).is_some())
}

#[derive(Debug)]
pub struct Archive<R> {
    name: String,
    reader: BufReader<R>,
    position: u64,
    length: u64,
}

impl<R: Read + Seek> Archive<R> {
    /// Reads an archive from its beginning. `name` is for errors.
    pub fn new(name: impl Into<String>, mut reader: R) -> Result<Self, Error> {
        let name = name.into();
        let length = reader
            .seek(SeekFrom::End(0))
            .and_then(|length| reader.rewind().map(|()| length))
            .map_err(|error| Error::Archive { layer: name.clone(), offset: 0, problem: error.to_string() })?;
        Ok(Self { name, reader: BufReader::with_capacity(8192, reader), position: 0, length })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The next entry; none at the end.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, Error> {
        let mut extended = Extended::default();
        let (mut long_path, mut long_link) = (None, None);
        loop {
            let start = self.position;
            let mut block = [0; BLOCK];
            if !self.read_header(&mut block)? {
                return Ok(None);
            }
            let header = Header::checked(&block).ok_or_else(|| self.broken(start, "no tar header"))?;
            let broken = |problem: &'static str| Error::Archive {
                layer: self.name.clone(),
                offset: start,
                problem: problem.into(),
            };
            let size = header.size().map_err(broken)?;
            match header.kind() {
                b'x' | b'X' => {
                    let records = self.read_extension(size)?;
                    extended.read(&records).map_err(|problem| self.broken(start, problem))?;
                }
                b'L' => long_path = Some(text(&self.read_extension(size)?).to_vec()),
                b'K' => long_link = Some(text(&self.read_extension(size)?).to_vec()),
                // Defaults for all that follow (comments of version control) and labels of volumes.
                b'g' | b'V' => self.skip(size)?,
                _ => {
                    let path = extended.path.take().or(long_path).unwrap_or_else(|| header.path());
                    let link = extended.link.take().or(long_link).unwrap_or_else(|| header.link());
                    return self.entry(&header, path, link, extended).map(Some);
                }
            }
        }
    }

    fn entry(
        &mut self,
        header: &Header<'_>,
        path: Vec<u8>,
        link: Vec<u8>,
        mut extended: Extended,
    ) -> Result<Entry, Error> {
        let layer = self.name.clone();
        let slash = path.ends_with(b"/");
        let name = extended.sparse.name.take().unwrap_or(path);
        let wrong = |problem: &str| Error::Entry {
            layer: layer.clone(),
            entry: name.clone(),
            problem: problem.into(),
        };
        let size = match extended.size {
            Some(size) => size,
            None => header.size().map_err(wrong)?,
        };
        let device = || header.device().map_err(wrong);
        let kind = match header.kind() {
            0 if slash => EntryKind::Directory,
            0 | b'0' | b'7' => self.file(size, &extended, &wrong)?,
            b'S' => self.gnu_sparse(size, header, &wrong)?,
            b'1' => EntryKind::HardLink,
            b'2' => EntryKind::Symlink,
            b'3' => device().map(|(major, minor)| EntryKind::CharacterDevice(major, minor))?,
            b'4' => device().map(|(major, minor)| EntryKind::BlockDevice(major, minor))?,
            b'5' => EntryKind::Directory,
            b'D' => {
                // GNU's directory with a list of its names, for incremental backups.
                self.skip(size)?;
                EntryKind::Directory
            }
            b'6' => EntryKind::Fifo,
            other => return Err(wrong(&format!("unsupported type {:?}", char::from(other)))),
        };
        let links = matches!(kind, EntryKind::HardLink | EntryKind::Symlink);
        Ok(Entry {
            mode: header.mode().map_err(wrong)?,
            uid: extended.uid.map_or_else(|| header.uid(), Ok).map_err(wrong)?,
            gid: extended.gid.map_or_else(|| header.gid(), Ok).map_err(wrong)?,
            modified: extended.modified.map_or_else(|| header.modified(), Ok).map_err(wrong)?,
            link: if links { link } else { Vec::new() },
            path: name,
            kind,
            xattrs: extended.xattrs,
        })
    }

    fn file(
        &mut self,
        size: u64,
        extended: &Extended,
        wrong: &dyn Fn(&str) -> Error,
    ) -> Result<EntryKind, Error> {
        let sparse = &extended.sparse;
        let offset = self.position;
        if let (Some(1), minor, Some(length)) = (sparse.major, sparse.minor, sparse.real_size) {
            if minor.unwrap_or_default() != 0 {
                return Err(wrong("unsupported version of the sparse format"));
            }
            self.check_within(size)?;
            let mut left = size;
            let (map, taken) = sparse::read_stored(
                |block| {
                    left = left
                        .checked_sub(BLOCK as u64)
                        .ok_or_else(|| wrong("map of the sparse file is cut"))?;
                    self.read_block(block)
                },
                wrong,
            )?;
            let stored = size.saturating_sub(taken);
            let runs = sparse::runs(&map, length, self.position, stored).map_err(wrong)?;
            self.skip(stored)?;
            return Ok(EntryKind::File { length, runs });
        }
        self.skip(size)?;
        if sparse.has_map {
            let length = sparse.real_size.ok_or_else(|| wrong("sparse file without its size"))?;
            let runs = sparse::runs(&sparse.map, length, offset, size).map_err(wrong)?;
            return Ok(EntryKind::File { length, runs });
        }
        let run = Run { at: 0, length: size, offset };
        Ok(EntryKind::File { length: size, runs: if size > 0 { vec![run] } else { Vec::new() } })
    }

    fn gnu_sparse(
        &mut self,
        size: u64,
        header: &Header<'_>,
        wrong: &dyn Fn(&str) -> Error,
    ) -> Result<EntryKind, Error> {
        let (field, mut more, length) = header.gnu_sparse().map_err(wrong)?;
        let mut map = Vec::new();
        sparse::read_gnu(field, &mut map).map_err(wrong)?;
        while more {
            let mut block = [0; BLOCK];
            self.read_block(&mut block)?;
            sparse::read_gnu(block.get(..504).unwrap_or_default(), &mut map).map_err(wrong)?;
            more = block.get(504).is_some_and(|flag| *flag != 0);
        }
        let offset = self.position;
        self.skip(size)?;
        let runs = sparse::runs(&map, length, offset, size).map_err(wrong)?;
        Ok(EntryKind::File { length, runs })
    }

    /// Reads a header. False at the end: of the file, or of zeros. One block of zeros alone is no end.
    fn read_header(&mut self, block: &mut [u8; BLOCK]) -> Result<bool, Error> {
        for _ in 0..2 {
            if self.position == self.length {
                return Ok(false);
            }
            self.read_block(block)?;
            if block.iter().any(|byte| *byte != 0) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn read_block(&mut self, block: &mut [u8; BLOCK]) -> Result<(), Error> {
        self.check_within(BLOCK as u64)?;
        self.reader.read_exact(block).map_err(|error| self.broken(self.position, &error.to_string()))?;
        self.position += BLOCK as u64;
        Ok(())
    }

    fn read_extension(&mut self, size: u64) -> Result<Vec<u8>, Error> {
        if size > EXTENSION_LIMIT {
            let what = format!("{}: an extended header", self.name);
            return Err(Error::Limit { what, limit: EXTENSION_LIMIT, unit: "bytes", flag: None });
        }
        self.check_within(size)?;
        let mut bytes = vec![0; usize::try_from(size).unwrap_or_default()];
        self.reader.read_exact(&mut bytes).map_err(|error| self.broken(self.position, &error.to_string()))?;
        self.position += size;
        self.skip(0)?;
        Ok(bytes)
    }

    fn check_within(&self, size: u64) -> Result<(), Error> {
        if size > self.length - self.position {
            return Err(self.broken(self.length, "the archive ends early"));
        }
        Ok(())
    }

    /// Skips content and its padding. The padding of the last entry may be missing.
    fn skip(&mut self, size: u64) -> Result<(), Error> {
        self.check_within(size)?;
        let next = (self.position + size).next_multiple_of(BLOCK as u64).min(self.length);
        let distance = i64::try_from(next - self.position)
            .map_err(|_| self.broken(self.position, "size is out of range"))?;
        self.reader
            .seek_relative(distance)
            .map_err(|error| self.broken(self.position, &error.to_string()))?;
        self.position = next;
        Ok(())
    }

    fn broken(&self, offset: u64, problem: &str) -> Error {
        Error::Archive { layer: self.name.clone(), offset, problem: problem.into() }
    }
}
