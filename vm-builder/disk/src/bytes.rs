//! Numbers in byte arrays, without a way to go out of bounds.

/// Writes bytes at an offset; what would lie outside is left out.
pub(crate) fn put(into: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = into.get_mut(at..).and_then(|rest| rest.get_mut(..bytes.len())) {
        place.copy_from_slice(bytes);
    }
}

/// Writes a little-endian 16-bit number.
pub(crate) fn put16(into: &mut [u8], at: usize, value: u16) {
    put(into, at, &value.to_le_bytes());
}

/// Writes a little-endian 32-bit number.
pub(crate) fn put32(into: &mut [u8], at: usize, value: u32) {
    put(into, at, &value.to_le_bytes());
}

/// The `N` bytes at an offset; zeros if they are not all there.
pub(crate) fn take<const N: usize>(from: &[u8], at: usize) -> [u8; N] {
    from.get(at..).and_then(|rest| rest.first_chunk::<N>()).copied().unwrap_or([0; N])
}

/// The low 16 bits.
pub(crate) fn low16(value: u64) -> u16 {
    let [a, b, ..] = value.to_le_bytes();
    u16::from_le_bytes([a, b])
}

/// The low 32 bits.
pub(crate) fn low32(value: u64) -> u32 {
    let [a, b, c, d, ..] = value.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// The high 32 bits.
pub(crate) fn high32(value: u64) -> u32 {
    low32(value >> 32)
}

/// A number of bytes in memory as a position on a disk.
pub(crate) fn wide(value: usize) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

/// A small position as an index; the greatest index otherwise, which no array has.
pub(crate) fn index(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}
