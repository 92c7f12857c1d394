//! The files that programs need to be loaded: their loader, their libraries, and what those need.

use std::collections::BTreeSet;

use crate::packages::{Packages, joined};
use crate::recipe::Architecture;
use crate::{Error, elf};

/// Paths of programs, their loaders and libraries, and the links that lead there.
///
/// # Errors
/// If no package has one of them, or one cannot be read or is for another architecture.
pub fn closure(
    packages: &Packages,
    programs: &[String],
    architecture: Architecture,
) -> Result<BTreeSet<String>, Error> {
    let mut taken = BTreeSet::new();
    let mut open: Vec<String> = programs.to_vec();
    while let Some(path) = open.pop() {
        let end = take(packages, &path, &mut taken)?;
        let Some(found) = packages.get(&end).filter(|_| taken.insert(end.clone())) else { continue };
        let bytes = std::fs::read(&found.host).map_err(Error::file("read", &found.host))?;
        let damaged = |problem| Error::Elf { path: end.clone(), problem };
        let Some(elf) = elf::read(&bytes).map_err(damaged)? else { continue };
        if elf.machine != architecture.machine() {
            return Err(Error::Architecture { path: found.host.clone(), architecture: architecture.name() });
        }
        open.extend(elf.interpreter.clone());
        for library in &elf.needed {
            let place = library_path(packages, &end, library, &elf, architecture);
            let missing = || Error::Library { library: library.clone(), needed_by: end.clone() };
            open.push(place.ok_or_else(missing)?);
        }
    }
    Ok(taken)
}

/// Takes the links on the way to a path; returns its end.
pub(crate) fn take(packages: &Packages, path: &str, taken: &mut BTreeSet<String>) -> Result<String, Error> {
    let way = packages.way(path).ok_or_else(|| Error::NotPackaged { path: path.to_owned() })?;
    taken.extend(way.links);
    Ok(way.end)
}

/// Where the loader finds a library: first in the program's own path, then in the usual directories.
fn library_path(
    packages: &Packages,
    program: &str,
    library: &str,
    elf: &elf::Elf,
    architecture: Architecture,
) -> Option<String> {
    let origin = program.rsplit_once('/').map_or("", |(directory, _)| directory);
    let own = elf.search.iter().map(|directory| {
        let directory = directory.replace("${ORIGIN}", "$ORIGIN").replace("$ORIGIN", origin);
        joined("/", &directory)
    });
    let usual =
        [format!("/usr/lib/{}", architecture.triplet()), "/usr/lib".to_owned(), "/usr/lib64".to_owned()];
    own.chain(usual)
        .map(|directory| format!("{directory}/{library}"))
        .find(|path| packages.way(path).is_some())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::packages::tests::package;

    /// An ELF file with a section `.dynamic` that names libraries and a search path.
    pub(crate) fn program(machine: u16, needed: &[&str], search: Option<&str>) -> Vec<u8> {
        let mut strings = vec![0];
        let mut entries: Vec<[u64; 2]> = Vec::new();
        for (tag, text) in needed.iter().map(|name| (1, *name)).chain(search.map(|path| (29, path))) {
            entries.push([tag, strings.len() as u64]);
            strings.extend(text.bytes().chain([0]));
        }
        entries.push([0, 0]);
        let dynamic: Vec<u8> = entries.iter().flatten().flat_map(|number| number.to_le_bytes()).collect();
        let (at_dynamic, at_strings) = (64, 64 + dynamic.len());
        let at_sections = at_strings + strings.len();
        let mut out = b"\x7fELF\x02\x01\x01".to_vec();
        out.resize(16, 0);
        out.extend([3u16.to_le_bytes(), machine.to_le_bytes()].concat());
        out.extend(1u32.to_le_bytes());
        out.extend([0u64, 0, at_sections as u64].iter().flat_map(|number| number.to_le_bytes()));
        out.extend(0u32.to_le_bytes());
        out.extend([64u16, 56, 0, 64, 3, 2].iter().flat_map(|number| number.to_le_bytes()));
        out.extend(&dynamic);
        out.extend(&strings);
        let section = |kind: u32, offset: usize, size: usize, link: u32, entry: u64| {
            let mut bytes = [0u32.to_le_bytes(), kind.to_le_bytes()].concat();
            bytes
                .extend([0u64, 0, offset as u64, size as u64].iter().flat_map(|number| number.to_le_bytes()));
            bytes.extend([link.to_le_bytes(), 0u32.to_le_bytes()].concat());
            bytes.extend([1u64, entry].iter().flat_map(|number| number.to_le_bytes()));
            bytes
        };
        out.extend(section(0, 0, 0, 0, 0));
        out.extend(section(6, at_dynamic, dynamic.len(), 2, 16));
        out.extend(section(3, at_strings, strings.len(), 0, 0));
        out
    }

    fn all(packages: &Packages, programs: &[&str]) -> Result<String, String> {
        let programs: Vec<String> = programs.iter().map(|&path| path.to_owned()).collect();
        let taken = closure(packages, &programs, Architecture::Amd64).map_err(|error| error.to_string())?;
        Ok(taken.into_iter().collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn libraries_of_libraries_are_found_where_loaders_look() {
        let root = tempfile::tempdir().unwrap();
        let mut packages = Packages::default();
        let tool = program(62, &["liba.so.1", "libown.so"], Some("$ORIGIN/../lib/tool"));
        let liba = program(62, &["libb.so.2"], None);
        let plain = program(62, &[], None);
        package(
            &mut packages,
            root.path(),
            "tool",
            &[
                ("/usr/bin/tool", &tool),
                ("/usr/lib/tool/libown.so", &plain),
                ("/usr/lib/tool/libunused.so", &plain),
            ],
        );
        package(
            &mut packages,
            root.path(),
            "liba",
            &[
                ("/lib/x86_64-linux-gnu/liba.so.1", b"->liba.so.1.0"),
                ("/lib/x86_64-linux-gnu/liba.so.1.0", &liba),
                ("/usr/lib/libb.so.2", &plain),
            ],
        );
        assert_eq!(
            all(&packages, &["/bin/tool"]).unwrap(),
            "/usr/bin/tool /usr/lib/libb.so.2 /usr/lib/tool/libown.so /usr/lib/x86_64-linux-gnu/liba.so.1 \
             /usr/lib/x86_64-linux-gnu/liba.so.1.0"
        );
        assert_eq!(packages.owners(["/usr/bin/tool".to_owned()].iter()).len(), 1);
    }

    #[test]
    fn what_is_missing_or_for_another_computer_is_reported() {
        let root = tempfile::tempdir().unwrap();
        let mut packages = Packages::default();
        let (lost, arm) = (program(62, &["libgone.so"], None), program(183, &[], None));
        package(&mut packages, root.path(), "a", &[("/usr/bin/lost", &lost), ("/usr/bin/arm", &arm)]);
        let error = |path: &str| all(&packages, &[path]).unwrap_err();
        assert!(error("/usr/bin/lost").starts_with("/usr/bin/lost needs libgone.so, which no package has"));
        assert!(error("/usr/bin/none").starts_with("no package has /usr/bin/none"));
        assert!(error("/usr/bin/arm").contains("is not a program for amd64"));
    }
}
