//! The files of a package, in memory, and the archive of them. The same files give the same bytes: entries are sorted, belong to
//! root (0:0), have one of two modes and one time.

use std::collections::BTreeMap;
use std::io::Write as _;

use anyhow::{Context as _, ensure};
use flate2::{Compression, GzBuilder};

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    Directory,
    File {
        bytes: Vec<u8>,
        program: bool,
    },
    /// A symbolic link, with its target.
    Link(String),
}

/// The files of a package by their paths below its root, without a leading slash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tree {
    entries: BTreeMap<String, Entry>,
}

impl Tree {
    /// Adds a file.
    pub(crate) fn file(&mut self, path: &str, bytes: impl Into<Vec<u8>>) {
        self.add(path, Entry::File { bytes: bytes.into(), program: false });
    }

    /// Adds a file that can be executed.
    pub(crate) fn program(&mut self, path: &str, bytes: impl Into<Vec<u8>>) {
        self.add(path, Entry::File { bytes: bytes.into(), program: true });
    }

    /// Adds a symbolic link.
    pub(crate) fn link(&mut self, path: &str, target: &str) {
        self.add(path, Entry::Link(target.to_owned()));
    }

    /// Adds an entry with the directories above it.
    fn add(&mut self, path: &str, entry: Entry) {
        for (at, _) in path.match_indices('/') {
            let above = path.get(..at).unwrap_or_default();
            self.entries.entry(above.to_owned()).or_insert(Entry::Directory);
        }
        self.entries.insert(path.to_owned(), entry);
    }

    /// The regular files with their content.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.entries.iter().filter_map(|(path, entry)| match entry {
            Entry::File { bytes, .. } => Some((path.as_str(), bytes.as_slice())),
            Entry::Directory | Entry::Link(_) => None,
        })
    }

    /// Space on a disk in KiB, as Debian counts it: files rounded up, 1 for each directory and link.
    pub(crate) fn kibibytes(&self) -> u64 {
        let of = |entry: &Entry| match entry {
            Entry::File { bytes, .. } => (bytes.len() as u64).div_ceil(1024),
            Entry::Directory | Entry::Link(_) => 1,
        };
        self.entries.values().map(of).sum()
    }

    /// The archive, in GNU's format. With `dotted`, names begin with `./` and the root itself is the first entry, as in Debian packages.
    pub(crate) fn tar(&self, dotted: bool, time: u64) -> anyhow::Result<Vec<u8>> {
        let mut archive = tar::Builder::new(Vec::new());
        if dotted {
            append(&mut archive, "./", &Entry::Directory, time)?;
        }
        for (path, entry) in &self.entries {
            let start = if dotted { "./" } else { "" };
            let end = if *entry == Entry::Directory { "/" } else { "" };
            append(&mut archive, &format!("{start}{path}{end}"), entry, time)?;
        }
        Ok(archive.into_inner()?)
    }
}

/// Appends one entry. The name is written as it is: the crate's own functions remove a leading `./`.
fn append(archive: &mut tar::Builder<Vec<u8>>, name: &str, entry: &Entry, time: u64) -> anyhow::Result<()> {
    let mut header = tar::Header::new_gnu();
    let (kind, mode, bytes): (_, _, &[u8]) = match entry {
        Entry::Directory => (tar::EntryType::Directory, 0o755, &[]),
        Entry::File { bytes, program } => {
            (tar::EntryType::Regular, if *program { 0o755 } else { 0o644 }, bytes)
        }
        Entry::Link(_) => (tar::EntryType::Symlink, 0o777, &[]),
    };
    if let Entry::Link(target) = entry {
        header
            .set_link_name_literal(target)
            .with_context(|| format!("{name}: the link's target is too long"))?;
    }
    let field = &mut header.as_old_mut().name;
    ensure!(
        name.len() < field.len(),
        "{name}: shorten the path, an archive's names have up to {} bytes",
        field.len() - 1
    );
    field.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(bytes.len() as u64);
    header.set_mtime(time);
    header.set_uid(0);
    header.set_gid(0);
    header.set_username("root")?;
    header.set_groupname("root")?;
    header.set_cksum();
    archive.append(&header, bytes).with_context(|| format!("cannot pack {name}"))
}

/// Compressed as `gzip -9n` does: without name and time.
pub(crate) fn gzip(bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut writer = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    writer.write_all(bytes)?;
    Ok(writer.finish()?)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn entries_are_sorted_and_belong_to_root() {
        let mut tree = Tree::default();
        tree.program("usr/bin/tool", "#!/bin/sh\n");
        tree.link("usr/bin/other", "tool");
        tree.file("usr/share/doc/x", vec![0; 1025]);
        let bytes = tree.tar(true, 1_700_000_000).unwrap();
        let mut archive = tar::Archive::new(bytes.as_slice());
        let mut shown = Vec::new();
        for entry in archive.entries().unwrap() {
            let entry = entry.unwrap();
            let header = entry.header();
            assert_eq!((header.uid().unwrap(), header.gid().unwrap()), (0, 0));
            assert_eq!(header.mtime().unwrap(), 1_700_000_000);
            let name = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
            shown.push(format!("{:o} {name}", header.mode().unwrap()));
        }
        let wanted = [
            "755 ./",
            "755 ./usr/",
            "755 ./usr/bin/",
            "777 ./usr/bin/other",
            "755 ./usr/bin/tool",
            "755 ./usr/share/",
            "755 ./usr/share/doc/",
            "644 ./usr/share/doc/x",
        ];
        assert_eq!(shown, wanted);
        // Two files of one and of two KiB, a link and four directories.
        assert_eq!(tree.kibibytes(), 1 + 2 + 1 + 4);
    }

    #[test]
    fn the_order_of_adding_does_not_matter() {
        let (mut one, mut other) = (Tree::default(), Tree::default());
        one.file("a/x", "1");
        one.file("b/y", "2");
        other.file("b/y", "2");
        other.file("a/x", "1");
        let packed = |tree: &Tree| gzip(&tree.tar(false, 7).unwrap()).unwrap();
        assert_eq!(packed(&one), packed(&other));
        assert_ne!(one.tar(false, 7).unwrap(), one.tar(false, 8).unwrap());
    }

    #[test]
    fn long_names_are_refused() {
        let mut tree = Tree::default();
        tree.file(&"x".repeat(100), "");
        assert!(tree.tar(false, 0).unwrap_err().to_string().contains("shorten the path"));
    }

    #[test]
    fn compressed_files_have_neither_name_nor_time() {
        let packed = gzip(b"text\n").unwrap();
        assert_eq!(packed.get(3..8), Some([0, 0, 0, 0, 0].as_slice()));
        let mut text = String::new();
        flate2::read::GzDecoder::new(packed.as_slice()).read_to_string(&mut text).unwrap();
        assert_eq!(text, "text\n");
    }
}
