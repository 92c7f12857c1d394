//! CRC-32C as ext4 uses it: without the inversion at the end, so that sums can be continued.

/// The sum of `data`, continued from `seed`.
pub(super) fn crc(seed: u32, data: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, data)
}

/// What sums of an inode, its directory blocks and its extent blocks start from. Generations are 0 here.
pub(super) fn inode_seed(seed: u32, ino: u32) -> u32 {
    crc(crc(seed, &ino.to_le_bytes()), &0u32.to_le_bytes())
}
