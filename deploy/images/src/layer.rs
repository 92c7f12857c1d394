//! A tree as a compressed tar. The same tree gives the same bytes.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use flate2::{Compression, GzBuilder};
use neonvm_builder::reference::{Digest, Hasher};

use crate::tree::{Node, Tree};

/// Media type of what is written.
pub const MEDIA_TYPE: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Digest of the uncompressed tar.
    pub diff_id: Digest,
    /// Bytes of the uncompressed tar.
    pub length: u64,
}

/// Counts and hashes what goes through.
struct Hashing<W> {
    inner: W,
    hasher: Hasher,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.hasher.update(bytes.get(..count).unwrap_or_default());
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Writes a layer.
///
/// # Errors
/// If a file cannot be read or the output not be written.
pub fn write(tree: &Tree, out: impl Write) -> io::Result<Written> {
    let gzip = GzBuilder::new().mtime(0).write(BufWriter::new(out), Compression::best());
    let hashing = Hashing { inner: gzip, hasher: Hasher::default() };
    let mut tar = tar::Builder::new(hashing);
    for (path, node) in tree.iter() {
        add(&mut tar, path, node)?;
    }
    let Hashing { inner, hasher } = tar.into_inner()?;
    inner.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?.flush()?;
    Ok(Written { length: hasher.length(), diff_id: hasher.finish() })
}

fn add(tar: &mut tar::Builder<impl Write>, path: &str, node: &Node) -> io::Result<()> {
    let header = |kind: tar::EntryType, mode: u32, size: u64| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(size);
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        header
    };
    match node {
        Node::Directory(mode) => {
            tar.append_data(&mut header(tar::EntryType::Directory, *mode, 0), format!("{path}/"), io::empty())
        }
        Node::Link(target) => tar.append_link(&mut header(tar::EntryType::Symlink, 0o777, 0), path, target),
        Node::Bytes(bytes) => {
            let mut header = header(tar::EntryType::Regular, 0o644, bytes.len() as u64);
            tar.append_data(&mut header, path, bytes.as_slice())
        }
        Node::File { from, executable } => {
            let named =
                |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", from.display()));
            let file = File::open(from).map_err(named)?;
            let mode = if *executable { 0o755 } else { 0o644 };
            let length = file.metadata().map_err(named)?.len();
            tar.append_data(&mut header(tar::EntryType::Regular, mode, length), path, file).map_err(named)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn the_same_tree_gives_the_same_bytes_whenever_and_wherever() {
        let once = |age: u64| {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("program");
            std::fs::write(&path, b"program").unwrap();
            let time = SystemTime::now() - Duration::from_secs(age);
            File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
            let mut tree = Tree::default();
            tree.add("/usr/bin/p", Node::File { from: path, executable: true }).unwrap();
            tree.add("/etc/passwd", Node::Bytes(b"root".to_vec())).unwrap();
            tree.add("/bin", Node::Link("usr/bin".into())).unwrap();
            tree.add("/tmp", Node::Directory(0o1777)).unwrap();
            let mut out = Vec::new();
            let written = write(&tree, &mut out).unwrap();
            (out, written)
        };
        let (first, written) = once(0);
        assert_eq!((first.clone(), written), once(1_000_000));
        let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(first.as_slice()));
        let entry = |entry: tar::Entry<'_, _>| {
            let header = entry.header();
            (entry.path().unwrap().display().to_string(), header.mode().unwrap(), header.mtime().unwrap())
        };
        let entries: Vec<_> = tar.entries().unwrap().map(|one| entry(one.unwrap())).collect();
        let wanted = [
            ("bin", 0o777),
            ("etc/", 0o755),
            ("etc/passwd", 0o644),
            ("tmp/", 0o1777),
            ("usr/", 0o755),
            ("usr/bin/", 0o755),
            ("usr/bin/p", 0o755),
        ];
        assert_eq!(entries, wanted.map(|(path, mode)| (path.to_owned(), mode, 0)));
    }

    #[test]
    fn a_file_that_is_gone_is_named() {
        let mut tree = Tree::default();
        tree.add("/x", Node::File { from: "/no/such".into(), executable: false }).unwrap();
        assert!(write(&tree, io::sink()).unwrap_err().to_string().starts_with("/no/such: "));
    }
}
