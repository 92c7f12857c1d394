//! What can be chosen.

use crate::tree::Time;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Journal {
    /// As mke2fs chooses by the size of the file system: none below 8 MiB, 4 MiB–1 GiB above.
    #[default]
    Default,
    /// None: as ext4 without `has_journal`.
    None,
    /// So many blocks of 4 KiB, 1024–10,240,000.
    Blocks(u32),
}

/// What can be chosen of an ext4 file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Size in bytes, rounded down to whole blocks of 4 KiB; the end is cut off if it is too short for a group.
    /// `None`: what the tree needs and `margin`, rounded up to 1 MiB.
    pub size: Option<u64>,
    /// Bytes to keep free if `size` is `None`. `None`: a tenth of the content, at least 32 MiB.
    pub margin: Option<u64>,
    /// Volume label, at most 16 bytes.
    pub label: String,
    /// UUID; checksums are seeded with it.
    pub uuid: [u8; 16],
    pub hash_seed: [u8; 16],
    /// Time of creation of the file system and of every inode.
    pub created: Time,
    pub journal: Journal,
    /// Bytes per inode: 1024 and more. More inodes are made if the tree needs them.
    pub inode_ratio: u64,
    /// Least number of inodes, even if the ratio gives fewer.
    pub inodes: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            size: None,
            margin: None,
            label: "vmroot".to_owned(),
            uuid: [0; 16],
            hash_seed: [0; 16],
            created: Time::default(),
            journal: Journal::Default,
            inode_ratio: 16384,
            inodes: None,
        }
    }
}
