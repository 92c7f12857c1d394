//! What a program needs to be loaded, out of its ELF headers.

use object::Endianness;
use object::elf::{DT_NEEDED, DT_RPATH, DT_RUNPATH, FileHeader64};
use object::read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _};

/// What the loader of a program looks at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Elf {
    /// `e_machine`.
    pub machine: u16,
    /// Path of the loader; absent for libraries and static programs.
    pub interpreter: Option<String>,
    /// Names of the libraries.
    pub needed: Vec<String>,
    /// Directories that are looked through first; may hold `$ORIGIN`.
    pub search: Vec<String>,
}

/// Reads a file's headers. `None`: it is no 64-bit ELF file.
///
/// # Errors
/// What is wrong with one that is damaged.
pub fn read(bytes: &[u8]) -> Result<Option<Elf>, String> {
    if !bytes.starts_with(b"\x7fELF\x02") {
        return Ok(None);
    }
    let wrong = |error: object::read::Error| error.to_string();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let header = FileHeader64::<Endianness>::parse(bytes).map_err(wrong)?;
    let endian = header.endian().map_err(wrong)?;
    let mut elf = Elf { machine: header.e_machine(endian), ..Elf::default() };
    for segment in header.program_headers(endian, bytes).map_err(wrong)? {
        if let Some(path) = segment.interpreter(endian, bytes).map_err(wrong)? {
            elf.interpreter = Some(text(path));
        }
    }
    let sections = header.sections(endian, bytes).map_err(wrong)?;
    let Some((entries, link)) = sections.dynamic(endian, bytes).map_err(wrong)? else {
        return Ok(Some(elf));
    };
    let strings = sections.strings(endian, bytes, link).map_err(wrong)?;
    for entry in entries {
        let value = || entry.string(endian, strings).map(text).map_err(wrong);
        match entry.tag(endian) {
            DT_NEEDED => elf.needed.push(value()?),
            DT_RPATH | DT_RUNPATH => elf.search.extend(value()?.split(':').map(str::to_owned)),
            _ => {}
        }
    }
    Ok(Some(elf))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_needs_the_c_library_and_a_loader() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        let elf = read(&own).unwrap().unwrap();
        assert!(elf.needed.iter().any(|name| name.starts_with("libc.so")), "{elf:?}");
        assert!(elf.interpreter.unwrap().contains("ld-linux"));
    }

    #[test]
    fn what_is_no_program_and_what_is_damaged_is_distinguished() {
        assert_eq!(read(b"#!/bin/sh"), Ok(None));
        assert_eq!(read(b""), Ok(None));
        let own = std::fs::read("/proc/self/exe").unwrap();
        for length in [5, 40, 64, 200] {
            assert!(read(&own[..length]).is_err(), "{length}");
        }
    }
}
