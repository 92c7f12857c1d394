//! Rock Ridge (RRIP 1.10): POSIX metadata of a file, as system use fields of its directory record.

use super::name::short_date;
use crate::bytes::{low32, wide};
use crate::tree::{Inode, Kind};

/// Bytes of the field with the position of further fields.
pub(super) const CONTINUED: usize = 28;
/// Longest part of a name or target in one field.
const PART: usize = 248;

/// A 32-bit number in both byte orders.
pub(super) fn both32(value: u32) -> [u8; 8] {
    let ([a, b, c, d], [e, f, g, h]) = (value.to_le_bytes(), value.to_be_bytes());
    [a, b, c, d, e, f, g, h]
}

/// A field: two letters, length, version, content.
fn field(kind: &[u8; 2], content: &[u8]) -> Vec<u8> {
    let mut field = kind.to_vec();
    field.extend([u8::try_from(content.len() + 4).unwrap_or(u8::MAX), 1]);
    field.extend(content);
    field
}

/// Fields of the first record of the root: that and which fields are used.
pub(super) fn announcement() -> Vec<Vec<u8>> {
    let mut reference = vec![10, 0, 0, 1];
    reference.extend(b"RRIP_1991A");
    vec![field(b"SP", &[0xBE, 0xEF, 0]), field(b"ER", &reference)]
}

/// Where more fields are.
pub(super) fn continued(block: u32, offset: u32, length: u32) -> Vec<u8> {
    let numbers = [both32(block), both32(offset), both32(length)];
    field(b"CE", numbers.as_flattened())
}

/// Mode with the type of file.
fn mode(inode: &Inode) -> u32 {
    let kind = match inode.kind {
        Kind::Directory(_) => 0o040_000,
        Kind::File(_) => 0o100_000,
        Kind::Symlink(_) => 0o120_000,
        Kind::CharacterDevice { .. } => 0o020_000,
        Kind::BlockDevice { .. } => 0o060_000,
        Kind::Fifo => 0o010_000,
        Kind::Socket => 0o140_000,
    };
    kind | u32::from(inode.metadata.mode & 0o7777)
}

/// Fields of an inode; with a name for all but the records of a directory for itself and the one above.
pub(super) fn fields(inode: &Inode, links: u32, name: Option<&[u8]>) -> Vec<Vec<u8>> {
    let metadata = &inode.metadata;
    let owner = [both32(mode(inode)), both32(links), both32(metadata.uid), both32(metadata.gid)];
    let mut fields = vec![field(b"PX", owner.as_flattened())];
    let date = short_date(metadata.modified);
    // Change of content, access, change of attributes.
    let mut dates = vec![0x0E];
    for _ in 0..3 {
        dates.extend(date);
    }
    fields.push(field(b"TF", &dates));
    let mut parts = name.unwrap_or_default().chunks(PART).peekable();
    while let Some(part) = parts.next() {
        let mut content = vec![u8::from(parts.peek().is_some())];
        content.extend(part);
        fields.push(field(b"NM", &content));
    }
    match &inode.kind {
        Kind::CharacterDevice { major, minor } | Kind::BlockDevice { major, minor } => {
            fields.push(field(b"PN", [both32(*major), both32(*minor)].as_flattened()));
        }
        Kind::Symlink(target) => fields.extend(target_fields(target)),
        _ => {}
    }
    fields
}

/// Fields of a target: its parts, over as many fields as it takes.
fn target_fields(target: &[u8]) -> Vec<Vec<u8>> {
    let mut parts: Vec<Vec<u8>> = Vec::new();
    let mut names = target.split(|byte| *byte == b'/').peekable();
    if target.first() == Some(&b'/') {
        parts.push(vec![8, 0]);
        names.next();
    }
    for name in names.filter(|name| !name.is_empty()) {
        match name {
            b"." => parts.push(vec![2, 0]),
            b".." => parts.push(vec![4, 0]),
            _ => {
                // A part that continues in the next one is marked so.
                let mut pieces = name.chunks(PART).peekable();
                while let Some(piece) = pieces.next() {
                    let length = u8::try_from(piece.len()).unwrap_or(u8::MAX);
                    let mut part = vec![u8::from(pieces.peek().is_some()), length];
                    part.extend(piece);
                    parts.push(part);
                }
            }
        }
    }
    let mut contents: Vec<Vec<u8>> = vec![vec![0]];
    for part in parts {
        match contents.last_mut() {
            Some(last) if last.len() + part.len() + 4 <= 255 => last.extend(part),
            _ => {
                // The field before has a flag for a further one.
                if let Some(flags) = contents.last_mut().and_then(|last| last.first_mut()) {
                    *flags = 1;
                }
                let mut content = vec![0];
                content.extend(part);
                contents.push(content);
            }
        }
    }
    contents.iter().map(|content| field(b"SL", content)).collect()
}

/// Divides fields into what fits into `room` bytes and the rest in areas of at most `area` bytes, each but the last
/// leaving room for the field with the position of the next area.
pub(super) fn divide(fields: Vec<Vec<u8>>, room: usize, area: usize) -> Vec<Vec<u8>> {
    let total: usize = fields.iter().map(Vec::len).sum();
    let mut areas = vec![Vec::new()];
    let (mut limit, mut left) = (room, total);
    for field in fields {
        let used = areas.last().map_or(0, Vec::len);
        let keep = if used + left <= limit { 0 } else { CONTINUED };
        if used + field.len() + keep > limit {
            areas.push(Vec::new());
            limit = area;
        }
        left -= field.len();
        if let Some(last) = areas.last_mut() {
            last.extend(field);
        }
    }
    areas
}

/// The length of fields in a record, as a number of a record.
pub(super) fn length32(bytes: &[u8]) -> u32 {
    low32(wide(bytes.len()))
}
