//! The kernel's file: what can start it.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::fs::MemfdFlags;

use crate::plan::{Architecture, Firmware};

/// `PT_NOTE` of ELF.
const NOTES: u32 = 4;
/// `XEN_ELFNOTE_PHYS32_ENTRY` (Xen's `include/public/elfnote.h`): where a PVH kernel starts.
const PVH_ENTRY: u32 = 18;
/// Most bytes of notes that are read.
const MOST_NOTES: u64 = 64 << 10;

/// The quickest firmware that starts a kernel.
///
/// # Errors
/// If the file cannot be read.
pub fn firmware(kernel: &Path, architecture: Architecture) -> io::Result<Firmware> {
    let file = File::open(kernel)?;
    match architecture {
        Architecture::Amd64 if is_pvh(&file) => Ok(Firmware::Qboot),
        Architecture::Amd64 | Architecture::Arm64 => Ok(Firmware::Default),
    }
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn at(file: &File, offset: u64, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, offset).ok()?;
    Some(bytes)
}

/// Whether it is an ELF file, 64 bits, little-endian, with a note of the PVH entry.
fn is_pvh(file: &File) -> bool {
    let inner = || -> Option<bool> {
        let head = at(file, 0, 64)?;
        if head.get(..6)? != b"\x7fELF\x02\x01" {
            return Some(false);
        }
        let table = u64::from_le_bytes(number(&head, 32)?);
        let size = u16::from_le_bytes(number(&head, 54)?);
        let count = u16::from_le_bytes(number(&head, 56)?);
        for index in 0..u64::from(count.min(64)) {
            let entry = at(file, table.checked_add(index * u64::from(size))?, 56)?;
            if u32::from_le_bytes(number(&entry, 0)?) != NOTES {
                continue;
            }
            let start = u64::from_le_bytes(number(&entry, 8)?);
            let length = u64::from_le_bytes(number(&entry, 32)?).min(MOST_NOTES);
            let notes = at(file, start, usize::try_from(length).ok()?)?;
            if has_entry(&notes) {
                return Some(true);
            }
        }
        Some(false)
    };
    inner().unwrap_or(false)
}

fn has_entry(mut notes: &[u8]) -> bool {
    let mut next = || -> Option<bool> {
        let size = |at| -> Option<usize> { usize::try_from(u32::from_le_bytes(number(notes, at)?)).ok() };
        let (name_size, content_size) = (size(0)?, size(4)?);
        let kind = u32::from_le_bytes(number(notes, 8)?);
        let name = notes.get(12..12usize.checked_add(name_size)?)?;
        if name == b"Xen\0" && kind == PVH_ENTRY {
            return Some(true);
        }
        let end = 12 + name_size.checked_next_multiple_of(4)?;
        notes = notes.get(end.checked_add(content_size.checked_next_multiple_of(4)?)?..)?;
        Some(false)
    };
    loop {
        match next() {
            Some(false) => {}
            Some(true) => return true,
            None => return false,
        }
    }
}

/// A file in memory.
pub(super) fn in_memory(name: &str, mut content: impl io::Read) -> io::Result<OwnedFd> {
    let mut copy = File::from(rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?);
    io::copy(&mut content, &mut copy)?;
    copy.seek(SeekFrom::Start(0))?;
    rustix::fs::fchmod(copy.as_fd(), rustix::fs::Mode::from_raw_mode(0o444))?;
    Ok(copy.into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn note(name: &[u8], kind: u32, content: &[u8]) -> Vec<u8> {
        let mut note = Vec::new();
        note.extend((name.len() as u32).to_le_bytes());
        note.extend((content.len() as u32).to_le_bytes());
        note.extend(kind.to_le_bytes());
        for part in [name, content] {
            note.extend(part);
            note.resize(note.len().next_multiple_of(4), 0);
        }
        note
    }

    #[test]
    fn the_entry_is_found_among_notes() {
        let mut notes = note(b"GNU\0", 3, &[1; 20]);
        assert!(!has_entry(&notes));
        notes.extend(note(b"Xen\0", 18, &[0; 4]));
        assert!(has_entry(&notes));
        assert!(!has_entry(&note(b"Xen\0", 1, &[0; 4])));
    }

    proptest! {
        #[test]
        fn any_notes_are_read(notes: Vec<u8>) {
            let _ = has_entry(&notes);
        }
    }
}
