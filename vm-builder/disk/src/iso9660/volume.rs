//! Lays a volume out and writes it.

use std::collections::{BTreeMap, BTreeSet};

use super::{Error, name};
use crate::bytes::{index, low16, low32, put, wide};
use crate::tree::{Content, Inode, InodeId, Kind, Origin, Tree};

/// Bytes of a block.
const BLOCK: u64 = 2048;
const BLOCK_LENGTH: usize = 2048;
/// Greatest size in bytes.
const LIMIT: u64 = 512 << 20;
/// First block that is free for tables.
const TABLES: u64 = 18;
/// The only date: the start of 1970, as years since 1900, month, day, hour, minute, second, zone; and as text.
const DATE: [u8; 7] = [70, 1, 1, 0, 0, 0, 0];
const LONG_DATE: &[u8] = b"1970010100000000\0";
/// Bytes of the Rock Ridge field with the position of a further one.
const CONTINUED: usize = 28;

struct Entry {
    primary: Vec<u8>,
    inode: InodeId,
    /// Number of the directory, if it is one.
    directory: Option<usize>,
    /// Rock Ridge fields in the record.
    fields: Vec<u8>,
    /// The rest of a long name, elsewhere; mostly empty.
    more: Vec<u8>,
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

/// A Rock Ridge field (RRIP 1.10): two letters, length, version, content.
fn field(kind: &[u8; 2], content: &[u8]) -> Vec<u8> {
    let mut field = kind.to_vec();
    field.extend([u8::try_from(content.len() + 4).unwrap_or(u8::MAX), 1]);
    field.extend(content);
    field
}

/// Fields of the first record of the root: that and which fields are used.
fn announcement() -> Vec<u8> {
    [field(b"SP", &[0xBE, 0xEF, 0]), field(b"ER", b"\x0A\0\0\x01RRIP_1991A")].concat()
}

/// The field with mode and owner of a file or directory; the number of a file's names is not available.
fn posix(inode: &Inode, tree: &Tree) -> Vec<u8> {
    let (kind, links) = match &inode.kind {
        Kind::Directory(names) => {
            let below = names.values().filter(|id| tree.names(**id).is_some()).count();
            (0o040_000, 2 + low32(wide(below)))
        }
        _ => (0o100_000, 1),
    };
    let metadata = &inode.metadata;
    let mode = kind | u32::from(metadata.mode & 0o7777);
    field(b"PX", [mode, links, metadata.uid, metadata.gid].map(both32).as_flattened())
}

/// Fields for a name: those that fit into `room`, and the one elsewhere with the rest of it.
fn name_fields(name: &[u8], room: usize) -> (Vec<u8>, Vec<u8>) {
    let part = |more: u8, part: &[u8]| field(b"NM", &[&[more], part].concat());
    if name.len() + 5 <= room {
        return (part(0, name), Vec::new());
    }
    let (first, rest) = name.split_at_checked(room.saturating_sub(CONTINUED + 5)).unwrap_or_default();
    (part(1, first), part(0, rest))
}

/// Bytes of a record.
fn size(entry: &Entry) -> usize {
    let more = if entry.more.is_empty() { 0 } else { CONTINUED };
    (fixed(&entry.primary) + entry.fields.len() + more).next_multiple_of(2)
}

pub(super) fn make(tree: &Tree, label: &str) -> Result<Vec<u8>, Error> {
    let mut directories = collect(tree)?;
    let table: usize = directories.iter().map(table_size).sum();
    let table_blocks = wide(table).div_ceil(BLOCK);
    let mut next = TABLES + 2 * table_blocks;
    for directory in &mut directories {
        directory.block = next;
        directory.length = directory_length(directory);
        next += directory.length / BLOCK;
    }
    let mut maker = Maker { tree, image: Vec::new(), more: next * BLOCK, contents: BTreeMap::new() };
    let mut data = next + more_blocks(&directories, next);
    maker.place_contents(&directories, &mut data)?;
    maker.image.resize(index(data * BLOCK), 0);
    for number in 0..directories.len() {
        maker.directory(&directories, number);
    }
    maker.tables(&directories, TABLES, table_blocks);
    maker.read_contents(&directories)?;
    let sizes = Sizes { blocks: data, table: wide(table), table_blocks };
    maker.descriptors(&directories, label, &sizes);
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
            let is_directory = match inode.kind {
                Kind::Directory(_) => true,
                Kind::File(_) => false,
                _ => return Err(entry("only files and directories can be on a volume")),
            };
            if is_directory && !seen.insert(*id) {
                return Err(entry("a directory can have only one name"));
            }
            let primary =
                if is_directory { name::directory(name, &mut taken) } else { name::file(name, &mut taken) };
            let mut fields = posix(inode, tree);
            let (named, more) = name_fields(name, 254 - fixed(&primary) - fields.len());
            fields.extend(named);
            entries.push((Entry { primary, inode: *id, directory: None, fields, more }, is_directory, path));
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

/// Bytes of a record of the path table.
fn table_size(directory: &Directory) -> usize {
    (8 + directory.primary.len()).next_multiple_of(2)
}

/// The records of a directory for itself and the one above, which have no areas elsewhere.
fn own_size(first: bool, root: bool) -> usize {
    let announced = if first && root { announcement().len() } else { 0 };
    (fixed(&[0]) + announced + 36).next_multiple_of(2)
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

/// Blocks of all fields elsewhere.
fn more_blocks(directories: &[Directory], first: u64) -> u64 {
    let mut at = index(first * BLOCK);
    for entry in directories.iter().flat_map(|directory| &directory.entries) {
        at = place(at, entry.more.len()) + entry.more.len();
    }
    wide(at).div_ceil(BLOCK) - first
}

struct Sizes {
    blocks: u64,
    table: u64,
    table_blocks: u64,
}

struct Maker<'t> {
    tree: &'t Tree,
    image: Vec<u8>,
    /// Where the next field elsewhere goes.
    more: u64,
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
    fn record(name: &[u8], target: &Target) -> Vec<u8> {
        let mut record = vec![0; fixed(name)];
        put(&mut record, 2, &both32(low32(target.block)));
        put(&mut record, 10, &both32(low32(target.length)));
        put(&mut record, 18, &DATE);
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
            let mut record = Self::record(&[name], &target);
            if number == 0 && name == 0 {
                record.extend(announcement());
            }
            record.extend(posix(inode, self.tree));
            at = self.store(start, at, record);
        }
        for entry in &directory.entries {
            let target = self.target(all, entry);
            let mut record = Self::record(&entry.primary, &target);
            record.extend(&entry.fields);
            if !entry.more.is_empty() {
                let place = place(index(self.more), entry.more.len());
                put(&mut self.image, place, &entry.more);
                self.more = wide(place + entry.more.len());
                let place = wide(place);
                let lead = [place / BLOCK, place % BLOCK, wide(entry.more.len())];
                record.extend(field(b"CE", lead.map(|number| both32(low32(number))).as_flattened()));
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

    fn read_contents(&mut self, all: &[Directory]) -> Result<(), Error> {
        for directory in all {
            for entry in &directory.entries {
                let Some(block) = self.contents.remove(&entry.inode) else { continue };
                let Some(Kind::File(content)) = self.tree.get(entry.inode).map(|inode| &inode.kind) else {
                    continue;
                };
                let start = index(block * BLOCK);
                let into = self.image.get_mut(start..).and_then(|rest| rest.get_mut(..index(content.length)));
                let into = into.unwrap_or_default();
                read(content, into).ok_or_else(|| Error::Entry {
                    path: format!("{}/{}", directory.path, String::from_utf8_lossy(&entry.primary)),
                    problem: "its content is not in memory".to_owned(),
                })?;
            }
        }
        Ok(())
    }

    fn descriptors(&mut self, all: &[Directory], label: &str, sizes: &Sizes) {
        let Some(root) = all.first() else { return };
        let mut bytes = vec![0; BLOCK_LENGTH];
        let b = &mut bytes;
        put(b, 0, b"\x01CD001\x01");
        put(b, 8, &[b' '; 64]);
        put(b, 40, label.as_bytes());
        put(b, 80, &both32(low32(sizes.blocks)));
        put(b, 120, &both16(1));
        put(b, 124, &both16(1));
        put(b, 128, &both16(2048));
        put(b, 132, &both32(low32(sizes.table)));
        put(b, 140, &low32(TABLES).to_le_bytes());
        put(b, 148, &low32(TABLES + sizes.table_blocks).to_be_bytes());
        let target = Target { block: root.block, length: root.length, directory: true };
        let mut record = Self::record(&[0], &target);
        put(&mut record, 0, &[34]);
        put(b, 156, &record);
        // Names of sets, people and files: none.
        put(b, 190, &[b' '; 623]);
        put(b, 813, LONG_DATE);
        put(b, 830, LONG_DATE);
        put(b, 847, &[b'0'; 16]);
        put(b, 864, LONG_DATE);
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

/// A 32-bit number in both byte orders.
fn both32(value: u32) -> [u8; 8] {
    let ([a, b, c, d], [e, f, g, h]) = (value.to_le_bytes(), value.to_be_bytes());
    [a, b, c, d, e, f, g, h]
}

/// Copies the content of a file into zeros; `None` if it is not in memory.
fn read(content: &Content, into: &mut [u8]) -> Option<()> {
    for piece in &content.pieces {
        let part = into.get_mut(index(piece.at)..)?.get_mut(..index(piece.length))?;
        let Origin::Memory(bytes) = &piece.origin else { return None };
        part.copy_from_slice(bytes.get(..part.len())?);
    }
    Some(())
}
