//! What keeps a program in the format ELF from starting: another processor, or a loader that is missing.

use neonvm_disk::tree::InodeId;

use super::Image;
use crate::content;

/// Most entries of the table of segments that are read, and longest name of a loader.
const MOST: u16 = 128;
const LONGEST: usize = 4096;
/// Type of the segment that names the loader.
const INTERPRETER: u64 = 3;

/// The problem of a program; `runs` reports whether a loader can be run.
pub(super) fn problem(image: &Image<'_>, program: InodeId, runs: impl Fn(&str) -> bool) -> Option<String> {
    let read = |offset: u64, length: usize| content::part(image.tree, image.sources, program, offset, length);
    let head = read(0, 64)?;
    let is_64 = match head.get(4..6) {
        Some([2, 1]) => true,
        Some([1, 1]) => false,
        _ => return Some("is a program for another processor".to_owned()),
    };
    let machine = number(&head, 18, 2)?;
    let expected: &[u64] = if image.architecture == "arm64" { &[183, 40] } else { &[62, 3] };
    if !expected.contains(&machine) {
        let of = match machine {
            3 => "x86",
            40 => "32-bit Arm",
            62 => "amd64",
            183 => "arm64",
            243 => "RISC-V",
            _ => "another processor",
        };
        return Some(format!("is a program for {of}, not for {}", image.architecture));
    }
    let loader = loader(&head, is_64, &read)?;
    if runs(&loader) {
        return None;
    }
    let hint = if loader.contains("musl") {
        "it was linked with musl, as on Alpine"
    } else {
        "it was linked dynamically for another distribution: link it statically, or add its libraries"
    };
    Some(format!("needs the loader {loader:?}, which is not in the image ({hint})"))
}

/// The path of the loader that a program names; `None`: it needs none.
fn loader(head: &[u8], is_64: bool, read: &dyn Fn(u64, usize) -> Option<Vec<u8>>) -> Option<String> {
    let (at, width, sizes) = if is_64 { (32, 8, 54) } else { (28, 4, 42) };
    let table = number(head, at, width)?;
    let size = u16::try_from(number(head, sizes, 2)?).ok()?;
    let count = u16::try_from(number(head, sizes + 2, 2)?).ok()?.min(MOST);
    for index in 0..count {
        let start = table.checked_add(u64::from(index) * u64::from(size))?;
        let entry = read(start, usize::from(size).min(64))?;
        if number(&entry, 0, 4)? != INTERPRETER {
            continue;
        }
        let (offset, length) = if is_64 {
            (number(&entry, 8, 8)?, number(&entry, 32, 8)?)
        } else {
            (number(&entry, 4, 4)?, number(&entry, 16, 4)?)
        };
        let name = read(offset, usize::try_from(length).ok()?.min(LONGEST))?;
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        return Some(String::from_utf8_lossy(name).into_owned()).filter(|name| !name.is_empty());
    }
    None
}

/// A little-endian number of up to 8 bytes.
fn number(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let field = bytes.get(at..at.checked_add(width)?)?;
    Some(field.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}
