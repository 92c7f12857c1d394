//! Lays a volume out and writes it.

use std::collections::{BTreeMap, BTreeSet};

use super::name::{self, long_date, short_date};
use super::rock::{self, CONTINUED, both32, length32};
use super::{Error, Options};
use crate::bytes::{index, low16, low32, put, wide};
use crate::tree::{Content, Inode, InodeId, Kind, Origin, Sources, Tree};

/// Bytes of a block.
const BLOCK: u64 = 2048;
const BLOCK_LENGTH: usize = 2048;
/// Greatest size in bytes.
const LIMIT: u64 = 512 << 20;
/// First block that is free for tables.
const TABLES: u64 = 18;

/// A name in a directory.
struct Entry {
    primary: Vec<u8>,
    inode: InodeId,
    /// Number of the directory, if it is one.
    directory: Option<usize>,
    /// System use: in the record, then elsewhere.
    areas: Vec<Vec<u8>>,
}

struct Directory {
    inode: InodeId,
    parent: usize,
    primary: Vec<u8>,
    path: String,
    entries: Vec<Entry>,
    block: u64,
    length: u64,
}

/// Bytes of a record without system use.
fn fixed(name: &[u8]) -> usize {
    (33 + name.len()).next_multiple_of(2)
}

/// Divides fields over a record and areas elsewhere.
fn areas(fields: Vec<Vec<u8>>, name: &[u8]) -> Vec<Vec<u8>> {
    rock::divide(fields, 254 - fixed(name), BLOCK_LENGTH)
}

/// Bytes of a record.
fn size(entry: &Entry) -> usize {
    let more = if entry.areas.len() > 1 { CONTINUED } else { 0 };
    (fixed(&entry.primary) + entry.areas.first().map_or(0, Vec::len) + more).next_multiple_of(2)
}

pub(super) fn make(tree: &Tree, sources: &dyn Sources, options: &Options) -> Result<Vec<u8>, Error> {
    let mut directories = collect(tree)?;
    let table: usize = directories.iter().map(table_size).sum();
    let table_blocks = wide(table).div_ceil(BLOCK);
    let mut next = TABLES + 2 * table_blocks;
    for directory in &mut directories {
        directory.block = next;
        directory.length = directory_length(directory);
        next += directory.length / BLOCK;
    }
    let mut maker = Maker { tree, sources, image: Vec::new(), more: next * BLOCK, contents: BTreeMap::new() };
    let mut data = next + more_blocks(&directories, next);
    maker.place_contents(&directories, &mut data)?;
    maker.image.resize(index(data * BLOCK), 0);
    for number in 0..directories.len() {
        maker.directory(&directories, number);
    }
    maker.tables(&directories, TABLES, table_blocks);
    maker.read_contents(&directories)?;
    let sizes = Sizes { blocks: data, table: wide(table), table_blocks };
    maker.descriptors(&directories, options, &sizes);
    Ok(maker.image)
}

/// The directories, level by level, with their names in the order of primary names.
fn collect(tree: &Tree) -> Result<Vec<Directory>, Error> {
    let mut seen = BTreeSet::from([tree.root()]);
    let root = Directory {
        inode: tree.root(),
        parent: 0,
        primary: vec![0],
        path: String::new(),
        entries: Vec::new(),
        block: 0,
        length: 0,
    };
    let mut all = vec![root];
    let mut number = 0;
    while let Some((id, above)) = all.get(number).map(|directory| (directory.inode, directory.path.clone())) {
        let (mut entries, mut taken) = (Vec::new(), BTreeSet::new());
        for (name, id) in tree.names(id).into_iter().flatten() {
            let path = format!("{above}/{}", String::from_utf8_lossy(name));
            let entry = |problem: &str| Error::Entry { path: path.clone(), problem: problem.to_owned() };
            if name.is_empty() || name.len() > 255 || name.contains(&b'/') || name.contains(&0) {
                return Err(entry("a name has 1 to 255 bytes, no `/` and no NUL"));
            }
            let inode = tree.get(*id).ok_or_else(|| entry("the tree has no such inode"))?;
            let is_directory = matches!(inode.kind, Kind::Directory(_));
            if is_directory && !seen.insert(*id) {
                return Err(entry("a directory can have only one name"));
            }
            let primary =
                if is_directory { name::directory(name, &mut taken) } else { name::file(name, &mut taken) };
            let fields = rock::fields(inode, links(inode, tree), Some(name));
            let areas = areas(fields, &primary);
            entries.push((Entry { primary, inode: *id, directory: None, areas }, is_directory, path));
        }
        entries.sort_by(|a, b| a.0.primary.cmp(&b.0.primary));
        for (entry, is_directory, path) in &mut entries {
            if *is_directory {
                entry.directory = Some(all.len());
                let (inode, path) = (entry.inode, std::mem::take(path));
                let primary = entry.primary.clone();
                let entries = Vec::new();
                all.push(Directory { inode, parent: number, primary, path, entries, block: 0, length: 0 });
            }
        }
        if all.len() > usize::from(u16::MAX) {
            let problem = "more than 65535 directories".to_owned();
            return Err(Error::Entry { path: "/".to_owned(), problem });
        }
        if let Some(directory) = all.get_mut(number) {
            directory.entries = entries.into_iter().map(|(entry, ..)| entry).collect();
        }
        number += 1;
    }
    Ok(all)
}

/// Links of an inode: for files the number of names is not available.
fn links(inode: &Inode, tree: &Tree) -> u32 {
    match &inode.kind {
        Kind::Directory(names) => {
            let below = names.values().filter(|id| tree.names(**id).is_some()).count();
            2 + low32(wide(below))
        }
        _ => 1,
    }
}

/// Bytes of a record of the path table.
fn table_size(directory: &Directory) -> usize {
    (8 + directory.primary.len()).next_multiple_of(2)
}

/// The records of a directory for itself and the one above, which have no areas elsewhere.
fn own_size(first: bool, root: bool) -> usize {
    let announced: usize = if first && root { rock::announcement().iter().map(Vec::len).sum() } else { 0 };
    // PX and TF.
    (fixed(&[0]) + announced + 36 + 26).next_multiple_of(2)
}

/// Bytes of a directory: no record crosses a block.
fn directory_length(directory: &Directory) -> u64 {
    let root = directory.primary == [0];
    let own = [own_size(true, root), own_size(false, root)];
    let mut at = 0;
    for size in own.into_iter().chain(directory.entries.iter().map(size)) {
        at = place(at, size) + size;
    }
    wide(at.next_multiple_of(BLOCK_LENGTH))
}

/// Where the next record of a size goes.
fn place(at: usize, size: usize) -> usize {
    if at % BLOCK_LENGTH + size > BLOCK_LENGTH { at.next_multiple_of(BLOCK_LENGTH) } else { at }
}

/// Bytes of the areas elsewhere, each with the field that leads on, as long as there is another.
fn area_sizes(entry: &Entry) -> impl Iterator<Item = usize> {
    let count = entry.areas.len();
    entry
        .areas
        .iter()
        .enumerate()
        .skip(1)
        .map(move |(number, area)| if number + 1 < count { area.len() + CONTINUED } else { area.len() })
}

/// Blocks of all areas elsewhere.
fn more_blocks(directories: &[Directory], first: u64) -> u64 {
    let mut at = index(first * BLOCK);
    for entry in directories.iter().flat_map(|directory| &directory.entries) {
        for size in area_sizes(entry) {
            at = place(at, size) + size;
        }
    }
    wide(at).div_ceil(BLOCK) - first
}

struct Sizes {
    blocks: u64,
    table: u64,
    table_blocks: u64,
}

/// Writes.
struct Maker<'t> {
    tree: &'t Tree,
    sources: &'t dyn Sources,
    image: Vec<u8>,
    /// Where the next area elsewhere goes.
    more: u64,
    /// Blocks of the content of files.
    contents: BTreeMap<InodeId, u64>,
}

/// Length and flags of what a record leads to.
struct Target {
    block: u64,
    length: u64,
    directory: bool,
}

impl Maker<'_> {
    /// Gives blocks to the content of files.
    fn place_contents(&mut self, directories: &[Directory], next: &mut u64) -> Result<(), Error> {
        for entry in directories.iter().flat_map(|directory| &directory.entries) {
            let Some(Kind::File(content)) = self.tree.get(entry.inode).map(|inode| &inode.kind) else {
                continue;
            };
            if self.contents.contains_key(&entry.inode) {
                continue;
            }
            self.contents.insert(entry.inode, *next);
            let needed = next.saturating_mul(BLOCK).saturating_add(content.length);
            if needed > LIMIT {
                return Err(Error::TooLarge { needed, limit: LIMIT });
            }
            *next += content.length.div_ceil(BLOCK);
        }
        Ok(())
    }

    /// A record without system use.
    fn record(&self, name: &[u8], inode: InodeId, target: &Target) -> Vec<u8> {
        let modified = self.tree.get(inode).map(|inode| inode.metadata.modified).unwrap_or_default();
        let mut record = vec![0; fixed(name)];
        put(&mut record, 2, &both32(low32(target.block)));
        put(&mut record, 10, &both32(low32(target.length)));
        put(&mut record, 18, &short_date(modified));
        put(&mut record, 25, &[if target.directory { 2 } else { 0 }]);
        put(&mut record, 28, &both16(1));
        put(&mut record, 32, &[u8::try_from(name.len()).unwrap_or(u8::MAX)]);
        put(&mut record, 33, name);
        record
    }

    /// Writes a record at a place, which it returns with the place behind it.
    fn store(&mut self, start: u64, at: usize, mut record: Vec<u8>) -> usize {
        record.resize(record.len().next_multiple_of(2), 0);
        let length = u8::try_from(record.len()).unwrap_or(u8::MAX);
        put(&mut record, 0, &[length]);
        let at = place(at, record.len());
        put(&mut self.image, index(start) + at, &record);
        at + record.len()
    }

    fn directory(&mut self, all: &[Directory], number: usize) {
        let Some(directory) = all.get(number) else { return };
        let start = directory.block * BLOCK;
        let mut at = 0;
        for (name, other) in [(0u8, Some(directory)), (1, all.get(directory.parent))] {
            let Some(other) = other else { continue };
            let Some(inode) = self.tree.get(other.inode) else { continue };
            let target = Target { block: other.block, length: other.length, directory: true };
            let mut record = self.record(&[name], other.inode, &target);
            if number == 0 && name == 0 {
                record.extend(rock::announcement().concat());
            }
            record.extend(rock::fields(inode, links(inode, self.tree), None).concat());
            at = self.store(start, at, record);
        }
        for entry in &directory.entries {
            let target = self.target(all, entry);
            let mut record = self.record(&entry.primary, entry.inode, &target);
            record.extend(entry.areas.first().into_iter().flatten());
            if let Some(lead) = self.elsewhere(entry) {
                record.extend(lead);
            }
            at = self.store(start, at, record);
        }
    }

    /// What a record leads to.
    fn target(&self, all: &[Directory], entry: &Entry) -> Target {
        if let Some(directory) = entry.directory.and_then(|number| all.get(number)) {
            return Target { block: directory.block, length: directory.length, directory: true };
        }
        let block = self.contents.get(&entry.inode).copied().unwrap_or(0);
        let length = match self.tree.get(entry.inode).map(|inode| &inode.kind) {
            Some(Kind::File(content)) => content.length,
            _ => 0,
        };
        Target { block, length, directory: false }
    }

    /// Writes the areas of an entry that are not in its record; the field that leads to the first of them.
    fn elsewhere(&mut self, entry: &Entry) -> Option<Vec<u8>> {
        let places: Vec<(u64, usize)> = area_sizes(entry)
            .map(|size| {
                let at = place(index(self.more), size);
                self.more = wide(at + size);
                (wide(at), size)
            })
            .collect();
        let mut lead = None;
        // From the last one, so that each contains the location of the next one.
        for ((at, _), area) in places.iter().zip(entry.areas.iter().skip(1)).rev() {
            let mut bytes = area.clone();
            bytes.extend(lead.take().unwrap_or_default());
            put(&mut self.image, index(*at), &bytes);
            lead = Some(rock::continued(low32(at / BLOCK), low32(at % BLOCK), length32(&bytes)));
        }
        lead
    }

    /// Writes the tables of directories, in both byte orders.
    fn tables(&mut self, all: &[Directory], first: u64, blocks: u64) {
        for big in [false, true] {
            let mut at = index((first + if big { blocks } else { 0 }) * BLOCK);
            for directory in all {
                let (block, parent) = (low32(directory.block), low16(wide(directory.parent + 1)));
                put(&mut self.image, at, &[u8::try_from(directory.primary.len()).unwrap_or(u8::MAX)]);
                if big {
                    put(&mut self.image, at + 2, &block.to_be_bytes());
                    put(&mut self.image, at + 6, &parent.to_be_bytes());
                } else {
                    put(&mut self.image, at + 2, &block.to_le_bytes());
                    put(&mut self.image, at + 6, &parent.to_le_bytes());
                }
                put(&mut self.image, at + 8, &directory.primary);
                at += table_size(directory);
            }
        }
    }

    /// Reads the content of all files.
    fn read_contents(&mut self, all: &[Directory]) -> Result<(), Error> {
        for directory in all {
            for entry in &directory.entries {
                let Some(block) = self.contents.remove(&entry.inode) else { continue };
                let Some(Kind::File(content)) = self.tree.get(entry.inode).map(|inode| &inode.kind) else {
                    continue;
                };
                let name = || format!("{}/{}", directory.path, String::from_utf8_lossy(&entry.primary));
                let start = index(block * BLOCK);
                let into = self.image.get_mut(start..).and_then(|rest| rest.get_mut(..index(content.length)));
                let into = into.unwrap_or_default();
                read(content, self.sources, into).map_err(|source| Error::Read { path: name(), source })?;
            }
        }
        Ok(())
    }

    fn descriptors(&mut self, all: &[Directory], options: &Options, sizes: &Sizes) {
        let Some(root) = all.first() else { return };
        let mut bytes = vec![0; BLOCK_LENGTH];
        let b = &mut bytes;
        put(b, 0, b"\x01CD001\x01");
        put(b, 8, &[b' '; 64]);
        put(b, 40, options.label.as_bytes());
        put(b, 80, &both32(low32(sizes.blocks)));
        put(b, 120, &both16(1));
        put(b, 124, &both16(1));
        put(b, 128, &both16(2048));
        put(b, 132, &both32(low32(sizes.table)));
        put(b, 140, &low32(TABLES).to_le_bytes());
        put(b, 148, &low32(TABLES + sizes.table_blocks).to_be_bytes());
        let target = Target { block: root.block, length: root.length, directory: true };
        let mut record = self.record(&[0], root.inode, &target);
        put(&mut record, 0, &[34]);
        put(b, 156, &record);
        // Names of sets, people and files: none.
        put(b, 190, &[b' '; 623]);
        let created = long_date(options.created);
        put(b, 813, &created);
        put(b, 830, &created);
        put(b, 847, &[b'0'; 16]);
        put(b, 864, &created);
        put(b, 881, &[1]);
        put(&mut self.image, 16 * BLOCK_LENGTH, &bytes);
        put(&mut self.image, 17 * BLOCK_LENGTH, b"\xFFCD001\x01");
    }
}

/// A 16-bit number in both byte orders.
fn both16(value: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (value.to_le_bytes(), value.to_be_bytes());
    [a, b, c, d]
}

/// Reads the content of a file into zeros.
fn read(content: &Content, sources: &dyn Sources, into: &mut [u8]) -> std::io::Result<()> {
    for piece in &content.pieces {
        let part = into.get_mut(index(piece.at)..).and_then(|rest| rest.get_mut(..index(piece.length)));
        let part = part.ok_or(std::io::ErrorKind::InvalidInput)?;
        match &piece.origin {
            Origin::Memory(bytes) => {
                let bytes = bytes.get(..part.len()).ok_or(std::io::ErrorKind::UnexpectedEof)?;
                part.copy_from_slice(bytes);
            }
            Origin::Source { source, offset } => sources.read_exact_at(*source, *offset, part)?,
        }
    }
    Ok(())
}
