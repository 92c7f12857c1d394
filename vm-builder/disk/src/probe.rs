//! What a disk holds, by its first bytes: the guest and the runner find disks by label.

use crate::bytes::take;
use crate::image::Image;

/// Number of bytes from the start of a disk that [`label`] needs to detect everything that it supports.
pub const BYTES: usize = 68 * 1024;

/// What a disk holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// ext2: no journal and no extents.
    Ext2,
    /// ext3: a journal and no extents.
    Ext3,
    /// ext4.
    Ext4,
    /// An ISO 9660 volume.
    Iso9660,
    Swap,
}

impl Type {
    /// Its name as `mount -t` takes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext2 => "ext2",
            Self::Ext3 => "ext3",
            Self::Ext4 => "ext4",
            Self::Iso9660 => "iso9660",
            Self::Swap => "swap",
        }
    }
}

/// What was found on a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// What the disk holds.
    pub kind: Type,
    /// Its label, without padding; empty if it has none.
    pub label: Vec<u8>,
    /// Its UUID, where the format has one and it is set.
    pub uuid: Option<[u8; 16]>,
}

/// Type, label and UUID of a disk from its first [`BYTES`]; fewer bytes see fewer types (2 KiB: ext, 4 KiB: swap).
#[must_use]
pub fn label(start: &[u8]) -> Option<Label> {
    extended(start).or_else(|| swap(start)).or_else(|| iso(start))
}

/// As [`label`], for an image.
///
/// # Errors
/// If the image cannot be read.
pub fn image(image: &dyn Image) -> std::io::Result<Option<Label>> {
    let length = usize::try_from(image.length()).unwrap_or(BYTES).min(BYTES);
    let mut start = vec![0; length];
    image.read_at(0, &mut start)?;
    Ok(label(&start))
}

/// ext2, ext3, ext4: the superblock is at 1024.
fn extended(start: &[u8]) -> Option<Label> {
    let block = start.get(1024..2048)?;
    if u16::from_le_bytes(take(block, 0x38)) != 0xEF53 {
        return None;
    }
    let compatible = u32::from_le_bytes(take(block, 0x5C));
    let incompatible = u32::from_le_bytes(take(block, 0x60));
    let read_only = u32::from_le_bytes(take(block, 0x64));
    // A journal device is no file system.
    if incompatible & 0x8 != 0 {
        return None;
    }
    // The features of ext3; anything else makes it ext4.
    let newer = incompatible & !0x16 != 0 || read_only & !0x7 != 0;
    let kind = match (newer, compatible & 0x4 != 0) {
        (true, _) => Type::Ext4,
        (false, true) => Type::Ext3,
        (false, false) => Type::Ext2,
    };
    let name: [u8; 16] = take(block, 0x78);
    Some(Label { kind, label: until(&name, 0), uuid: unique(take(block, 0x68)) })
}

/// A swap area: its mark ends the first page, whatever the page size of the system that made it.
fn swap(start: &[u8]) -> Option<Label> {
    let pages = [4096usize, 8192, 16384, 65536];
    let marked = pages.iter().any(|page| start.get(page - 10..*page) == Some(b"SWAPSPACE2"));
    if !marked || u32::from_le_bytes(take(start, 1024)) != 1 {
        return None;
    }
    let name: [u8; 16] = take(start, 1052);
    Some(Label { kind: Type::Swap, label: until(&name, 0), uuid: unique(take(start, 1036)) })
}

/// ISO 9660: the primary volume descriptor is at 32 KiB.
fn iso(start: &[u8]) -> Option<Label> {
    let block = start.get(32768..34816)?;
    if block.get(..7) != Some(b"\x01CD001\x01") {
        return None;
    }
    let name: [u8; 32] = take(block, 40);
    let label = name.trim_ascii_end();
    Some(Label { kind: Type::Iso9660, label: until(label, 0), uuid: None })
}

/// The bytes before the first `end`.
fn until(bytes: &[u8], end: u8) -> Vec<u8> {
    bytes.iter().copied().take_while(|byte| *byte != end).collect()
}

/// A UUID unless it is all zeros.
fn unique(uuid: [u8; 16]) -> Option<[u8; 16]> {
    (uuid != [0; 16]).then_some(uuid)
}
