//! Primary names and dates of ISO 9660. Real names are in the Rock Ridge fields.

use std::collections::BTreeSet;

use crate::tree::Time;

/// Longest primary name of a file without its version.
const FILE: usize = 28;
/// Longest extension.
const EXTENSION: usize = 8;
/// Longest primary name of a directory.
const DIRECTORY: usize = 31;

/// Signs in names besides letters and digits: those of ECMA-119 §7.4.2, without the dots and semicolons that separate
/// the parts of a name, and without the slash.
const SIGNS: &[u8] = br#"_!"%&'()*+,-:<=>?"#;

/// Lower case; what is neither a letter, a digit nor a sign becomes `_`.
fn mangled(name: &[u8], limit: usize) -> Vec<u8> {
    let keep = |byte: &u8| {
        if byte.is_ascii_alphanumeric() || SIGNS.contains(byte) { byte.to_ascii_lowercase() } else { b'_' }
    };
    name.iter().take(limit).map(keep).collect()
}

/// Primary name of a file: all dots but the last are replaced, the extension has at most 8 characters, the whole at
/// most 28. Of names that come out the same, later ones end with a number.
pub(super) fn file(name: &[u8], taken: &mut BTreeSet<Vec<u8>>) -> Vec<u8> {
    let dot = name.iter().rposition(|byte| *byte == b'.');
    let (stem, extension) = match dot.and_then(|dot| name.split_at_checked(dot)) {
        Some((stem, rest)) => (stem, mangled(rest.get(1..).unwrap_or_default(), EXTENSION)),
        None => (name, Vec::new()),
    };
    let room = if extension.is_empty() { FILE } else { FILE - 1 - extension.len() };
    unique(&mangled(stem, room), room, taken, |stem| {
        let mut whole = stem.to_vec();
        if !extension.is_empty() {
            whole.push(b'.');
            whole.extend(&extension);
        }
        whole.extend(b";1");
        whole
    })
}

/// Primary name of a directory.
pub(super) fn directory(name: &[u8], taken: &mut BTreeSet<Vec<u8>>) -> Vec<u8> {
    unique(&mangled(name, DIRECTORY), DIRECTORY, taken, <[u8]>::to_vec)
}

/// The name, or its first unused variant with a number.
fn unique(
    stem: &[u8],
    room: usize,
    taken: &mut BTreeSet<Vec<u8>>,
    whole: impl Fn(&[u8]) -> Vec<u8>,
) -> Vec<u8> {
    let mut found = whole(stem);
    let mut number = 0u32;
    while !taken.insert(found.clone()) {
        number += 1;
        let suffix = format!("_{number}");
        let mut shorter: Vec<u8> = stem.iter().copied().take(room.saturating_sub(suffix.len())).collect();
        shorter.extend(suffix.as_bytes());
        found = whole(&shorter);
    }
    found
}

/// Year, month, day, hour, minute, second.
fn civil(time: Time) -> (i64, u8, u8, u8, u8, u8) {
    // Within the range of the seven bytes: 1900 to 2155.
    let seconds = time.seconds.clamp(-2_208_988_800, 5_869_583_999);
    let small = |value: i64| u8::try_from(value).unwrap_or(0);
    let (days, rest) = (seconds.div_euclid(86400), seconds.rem_euclid(86400));
    // Days since 1 March of year 0, in eras of 400 years.
    let shifted = days + 719_468;
    let (era, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let calendar = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(calendar <= 2);
    (year, small(calendar), small(of_month), small(rest / 3600), small(rest / 60 % 60), small(rest % 60))
}

/// A date in seven bytes, in UTC.
pub(super) fn short_date(time: Time) -> [u8; 7] {
    let (year, month, day, hour, minute, second) = civil(time);
    [u8::try_from(year - 1900).unwrap_or(0), month, day, hour, minute, second, 0]
}

/// A date in 17 bytes, in UTC.
pub(super) fn long_date(time: Time) -> [u8; 17] {
    let (year, month, day, hour, minute, second) = civil(time);
    let hundredths = time.nanoseconds / 10_000_000;
    let text = format!("{year:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}{hundredths:02}\0");
    text.as_bytes().first_chunk().copied().unwrap_or([b'0'; 17])
}
