//! The sums, in integers: exact for every amount of memory.

use super::SYSTEM_BUFFER;

const MIB: u64 = 1 << 20;
/// Memory left for everything but the file cache, in bytes.
const FILE_CACHE_REMAINING: u64 = 256 * MIB;
/// The same by the informant's rule.
const INFORMANT_FILE_CACHE_REMAINING: u64 = 640 * MIB;

/// `value · numerator / denominator`, rounded down, at most 2^64 - 1.
const fn scaled(value: u64, numerator: u64, denominator: u64) -> u64 {
    let scaled = value as u128 * numerator as u128 / denominator as u128;
    if scaled > u64::MAX as u128 { u64::MAX } else { scaled as u64 }
}

/// What a VM of `total` bytes has for its workload.
#[must_use]
pub const fn usable(total: u64) -> u64 {
    total.saturating_sub(SYSTEM_BUFFER)
}

/// Use of memory in bytes above which more is requested: 85 % of what is usable.
#[must_use]
pub const fn threshold(usable: u64) -> u64 {
    scaled(usable, 85, 100)
}

/// The smallest VM in bytes whose threshold is above `used`, when `overhead` bytes of it are not usable.
#[must_use]
pub const fn needed_total(used: u64, overhead: u64) -> u64 {
    // Rounded up: 85 % of it must reach `used` + 1.
    let above = used.saturating_add(1);
    let usable = scaled(above, 100, 85);
    let usable = if threshold(usable) < above { usable.saturating_add(1) } else { usable };
    usable.saturating_add(overhead)
}

/// Size of the file cache in bytes, whole MiB, when `usable` bytes are there: 75 %, but 256 MiB stay free, and a tenth of
/// the cache's size for what it spreads into.
#[must_use]
pub const fn file_cache_size(usable: u64) -> u64 {
    file_cache_leaving(usable, FILE_CACHE_REMAINING)
}

/// Size of the file cache in bytes by the informant's rule, whole MiB, when `usable` bytes are there: as [`file_cache_size`], but
/// 640 MiB stay free.
#[must_use]
pub const fn informant_file_cache_size(usable: u64) -> u64 {
    file_cache_leaving(usable, INFORMANT_FILE_CACHE_REMAINING)
}

const fn file_cache_leaving(usable: u64, remaining: u64) -> u64 {
    let available = usable.saturating_sub(remaining);
    let (spread, share) = (scaled(available, 10, 11), scaled(usable, 75, 100));
    let size = if spread < share { spread } else { share };
    size / MIB * MIB
}

/// An amount for people, rounded down.
pub(super) fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes / MIB)
}

/// Whether two amounts in bytes are so near that a request for the second after the first is superfluous.
#[must_use]
pub const fn is_similar(first: u64, second: u64) -> bool {
    let (smaller, difference) = (if first < second { first } else { second }, first.abs_diff(second));
    // An eighth may be a fraction: compared without dividing.
    difference.saturating_mul(8) < smaller && difference < 128 * MIB
}
