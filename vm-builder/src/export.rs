//! The disk inside an image: what a runner does with a root disk that a VM names.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use neonvm_disk::tree::{Kind, Origin};

use crate::content;
use crate::engine::Error;
use crate::out::whole;
use crate::source::Loaded;

pub const DISK_PATH: &str = "/disk.qcow2";
/// Bytes copied at a time.
const CHUNK: u64 = 1 << 20;

/// Writes the disk of a loaded image to a file, which appears whole or not at all. Returns its size in bytes.
pub fn export(loaded: &Loaded, to: &Path) -> Result<u64, Error> {
    let missing = || Error::NoDisk { image: loaded.reference.clone() };
    let inode = content::find(&loaded.tree, DISK_PATH.as_bytes())
        .and_then(|id| loaded.tree.get(id))
        .ok_or_else(missing)?;
    let Kind::File(disk) = &inode.kind else { return Err(missing()) };
    whole(to, |file| {
        file.set_len(disk.length)?;
        for piece in &disk.pieces {
            file.seek(SeekFrom::Start(piece.at))?;
            copy(loaded, &piece.origin, piece.length, file)?;
        }
        Ok(())
    })
    .map_err(|error| Error::file("write", to, error))?;
    Ok(disk.length)
}

fn copy(loaded: &Loaded, origin: &Origin, length: u64, to: &mut File) -> io::Result<()> {
    let (source, start) = match origin {
        Origin::Memory(bytes) => return to.write_all(bytes),
        Origin::Source { source, offset } => (*source, *offset),
    };
    let mut done = 0;
    let mut buffer = Vec::new();
    while done < length {
        buffer.resize(usize::try_from(CHUNK.min(length - done)).unwrap_or_default(), 0);
        loaded.sources.read_exact_at(source, start + done, &mut buffer)?;
        to.write_all(&buffer)?;
        done += buffer.len() as u64;
    }
    Ok(())
}
