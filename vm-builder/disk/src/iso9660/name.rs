//! Primary names of ISO 9660. Real names are in the Rock Ridge fields.

use std::collections::BTreeSet;

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
