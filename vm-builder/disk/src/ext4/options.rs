//! What can be chosen.

use crate::tree::Time;

/// What can be chosen of an ext4 file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Size in bytes, rounded down to whole blocks of 4 KiB; the end is cut off if it is too short for a group.
    /// `None`: what the tree needs and `margin`, rounded up to 1 MiB.
    pub size: Option<u64>,
    /// Bytes to keep free if `size` is `None`.
    pub margin: u64,
    /// Volume label, at most 16 bytes.
    pub label: String,
    pub uuid: [u8; 16],
    pub hash_seed: [u8; 16],
    /// Time of creation of the file system and of every inode.
    pub created: Time,
}
