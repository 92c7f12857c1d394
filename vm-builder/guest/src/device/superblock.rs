//! What a block device holds, by its first bytes: type, label, UUID.
//!
//! Offsets are those of each format's on-disk definition: ext4 (`struct ext4_super_block`), swap
//! (`union swap_header`), ISO 9660 (ECMA-119 §8.4), EROFS, SquashFS, XFS.

/// How much of a device must be read: the head of the ISO volume descriptor ends here.
pub const HEAD: usize = 32768 + 2048;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Superblock {
    /// Name of the type, as `mount` takes it; `swap` for swap space.
    pub kind: &'static str,
    /// Label without padding; empty: none.
    pub label: String,
    /// UUID in its usual form; empty: none.
    pub uuid: String,
    /// Of ext4: number of blocks, block size in bytes.
    pub blocks: Option<(u64, u32)>,
    /// Of ext4: whether project quotas are stored.
    pub project_quota: bool,
}

/// `EXT4_FEATURE_RO_COMPAT_PROJECT`.
const EXT4_PROJECT: u32 = 0x2000;
/// `EXT4_FEATURE_INCOMPAT_64BIT`.
const EXT4_64BIT: u32 = 0x80;

impl Superblock {
    /// Reads the first [`HEAD`] bytes of a device, or fewer.
    pub fn parse(head: &[u8]) -> Option<Self> {
        if u16_at(head, 1024 + 56) == Some(0xef53) {
            return Some(ext4(head));
        }
        if bytes::<10>(head, 4096 - 10) == Some(*b"SWAPSPACE2") {
            return Some(Self::new("swap", text(head, 1024 + 28, 16), uuid(head, 1024 + 12)));
        }
        if bytes::<5>(head, 32769) == Some(*b"CD001") {
            return Some(Self::new("iso9660", text(head, 32768 + 40, 32), String::new()));
        }
        if u32_at(head, 1024) == Some(0xe0f5_e1e2) {
            return Some(Self::new("erofs", text(head, 1024 + 64, 16), uuid(head, 1024 + 48)));
        }
        if bytes::<4>(head, 0) == Some(*b"hsqs") {
            return Some(Self::new("squashfs", String::new(), String::new()));
        }
        if bytes::<4>(head, 0) == Some(*b"XFSB") {
            return Some(Self::new("xfs", text(head, 108, 12), uuid(head, 32)));
        }
        None
    }

    fn new(kind: &'static str, label: String, uuid: String) -> Self {
        Self { kind, label, uuid, ..Self::default() }
    }
}

fn ext4(head: &[u8]) -> Superblock {
    let at = |offset: usize| u32_at(head, 1024 + offset).unwrap_or_default();
    let high = if at(96) & EXT4_64BIT == 0 { 0 } else { u64::from(at(0x150)) };
    let blocks = high << 32 | u64::from(at(4));
    // The size is 1024 << this number, at most 64 KiB.
    let size = 1024_u32 << at(24).min(6);
    Superblock {
        blocks: Some((blocks, size)),
        project_quota: at(100) & EXT4_PROJECT != 0,
        ..Superblock::new("ext4", text(head, 1024 + 120, 16), uuid(head, 1024 + 104))
    }
}

fn bytes<const N: usize>(head: &[u8], offset: usize) -> Option<[u8; N]> {
    head.get(offset..)?.first_chunk().copied()
}

fn u16_at(head: &[u8], offset: usize) -> Option<u16> {
    bytes(head, offset).map(u16::from_le_bytes)
}

fn u32_at(head: &[u8], offset: usize) -> Option<u32> {
    bytes(head, offset).map(u32::from_le_bytes)
}

fn text(head: &[u8], offset: usize, length: usize) -> String {
    let field = head.get(offset..).unwrap_or_default();
    let field = field.get(..length).unwrap_or(field);
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(field.get(..end).unwrap_or_default()).trim_end().to_owned()
}

fn uuid(head: &[u8], offset: usize) -> String {
    let Some(bytes) = bytes::<16>(head, offset).filter(|bytes| *bytes != [0; 16]) else {
        return String::new();
    };
    let mut result = String::with_capacity(36);
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            result.push('-');
        }
        for digit in [byte >> 4, byte & 15] {
            result.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(parts: &[(usize, &[u8])]) -> Vec<u8> {
        let mut head = vec![0; HEAD];
        for (offset, bytes) in parts {
            head[*offset..offset + bytes.len()].copy_from_slice(bytes);
        }
        head
    }

    #[test]
    fn each_format_is_recognised() {
        let ext4 = with(&[
            (1080, &[0x53, 0xef]),
            (1028, &[0, 1, 0, 0]),
            (1048, &[2]),
            (1024 + 120, b"vmroot"),
            (1024 + 104, &[0xab; 16]),
        ]);
        let found = Superblock::parse(&ext4).unwrap();
        assert_eq!((found.kind, found.label.as_str(), found.blocks), ("ext4", "vmroot", Some((256, 4096))));
        assert_eq!(found.uuid, "abababab-abab-abab-abab-abababababab");
        let iso = with(&[(32769, b"CD001"), (32808, b"vmruntime                       ")]);
        assert_eq!(Superblock::parse(&iso).unwrap().label, "vmruntime");
        let swap = with(&[(4086, b"SWAPSPACE2"), (1052, b"swapdisk")]);
        assert_eq!(Superblock::parse(&swap).unwrap().label, "swapdisk");
        assert_eq!(Superblock::parse(&[0; HEAD]), None);
    }
}
