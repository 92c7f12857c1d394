//! Debian packages: an `ar` archive with a compressed `tar` in it (deb(5)). Read here, so that other distributions, which
//! have no `dpkg`, can take kernels from them.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Component, Path, PathBuf};

use crate::error::Doing as _;
use crate::packing::Packing;
use crate::{Error, run};

/// The archive's part with the files.
const CONTENT: &str = "data.tar";
/// What a kernel's package is read for, at most, in bytes: a complete set of modules has about a gibibyte.
const MOST: u64 = 4 << 30;
/// Where the files of a kernel are in its package.
const KEPT: [&str; 4] = ["boot/vmlinuz-", "boot/config-", "lib/modules/", "usr/lib/modules/"];

/// Unpacks kernel, configuration and modules of a package into a directory; other files and links are left out.
pub(crate) fn unpack(package: &Path, into: &Path) -> Result<(), Error> {
    let name = package.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let bad = |why: String| Error::malformed(format!("package {name}"), why);
    let file = File::open(package).doing("read", package)?;
    let mut archive = ar::Archive::new(BufReader::new(file));
    while let Some(entry) = archive.next_entry() {
        let entry = entry.map_err(|error| bad(format!("it is not a Debian package, or damaged: {error}")))?;
        let part = String::from_utf8_lossy(entry.header().identifier()).trim_end_matches('/').to_owned();
        if !part.starts_with(CONTENT) {
            continue;
        }
        let (plain, packing) = Packing::of_name(&part);
        if plain != CONTENT {
            return Err(bad(format!("{part} is compressed in a way that is not known (gz, xz and zst are)")));
        }
        let content = packing.reader(entry).map_err(|error| bad(format!("{part}: {error}")))?;
        return unpack_content(content, into, &|why| bad(format!("it is cut short or damaged: {why}")));
    }
    Err(bad(format!("it is not a Debian package: it holds no {CONTENT}")))
}

fn unpack_content(
    content: impl Read,
    into: &Path,
    damaged: &dyn Fn(io::Error) -> Error,
) -> Result<(), Error> {
    let mut left = MOST;
    let mut archive = tar::Archive::new(content);
    for entry in archive.entries().map_err(damaged)? {
        if run::interrupted() {
            return Err(Error::Interrupted);
        }
        let mut entry = entry.map_err(damaged)?;
        let path = plain(&entry.path().map_err(damaged)?);
        let wanted = path.filter(|path| KEPT.iter().any(|kept| path.to_string_lossy().starts_with(kept)));
        let (Some(path), true) = (wanted, entry.header().entry_type().is_file()) else { continue };
        left = left.checked_sub(entry.size()).ok_or_else(|| {
            damaged(io::Error::other(format!("its files have more than {} GiB", MOST >> 30)))
        })?;
        let to = into.join(path);
        let directory = to.parent().unwrap_or(into);
        std::fs::create_dir_all(directory).doing("make", directory)?;
        let mut file = File::create(&to).doing("create", &to)?;
        copy(&mut entry, &mut file, &to, damaged)?;
    }
    // The checksum of the compression is at the end.
    io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(damaged).map(drop)
}

/// Copies a file. A failure to read is one of the archive, a failure to write one of the file.
fn copy(
    from: &mut impl Read,
    file: &mut File,
    to: &Path,
    damaged: &dyn Fn(io::Error) -> Error,
) -> Result<(), Error> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let count = from.read(&mut buffer).map_err(damaged)?;
        match buffer.get(..count) {
            Some([]) | None => return Ok(()),
            Some(bytes) => io::Write::write_all(file, bytes).doing("write", to)?,
        }
    }
}

/// A path of an archive below its top, `None` if it leads elsewhere.
fn plain(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::Normal(name) => plain.push(name),
            Component::RootDir | Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    Some(plain)
}

/// For tests: a package of these files, compressed in one of the forms.
#[cfg(test)]
pub(crate) fn made(files: &[(String, Vec<u8>)], form: (&str, Packing)) -> Vec<u8> {
    let mut content = tar::Builder::new(Vec::new());
    for (path, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        content.append_data(&mut header, format!("./{path}"), bytes.as_slice()).unwrap();
    }
    let content = crate::packing::pack(form.1, &content.into_inner().unwrap());
    let mut archive = ar::Builder::new(Vec::new());
    let data = format!("{CONTENT}{}", form.0);
    let parts: [(&str, &[u8]); 3] =
        [("debian-binary", b"2.0\n"), ("control.tar.xz", b"not read"), (&data, &content)];
    for (name, bytes) in parts {
        archive.append(&ar::Header::new(name.as_bytes().to_vec(), bytes.len() as u64), bytes).unwrap();
    }
    archive.into_inner().unwrap()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::packing::FORMS;

    fn files() -> Vec<(String, Vec<u8>)> {
        [("boot/vmlinuz-1", "kernel"), ("etc/other", "x"), ("usr/lib/modules/1/a.ko", "module")]
            .map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec()))
            .into()
    }

    fn unpacked(bytes: &[u8]) -> Result<tempfile::TempDir, String> {
        let directory = tempfile::tempdir().unwrap();
        let package = directory.path().join("a.deb");
        std::fs::write(&package, bytes).unwrap();
        unpack(&package, &directory.path().join("tree")).map_err(|error| error.to_string())?;
        Ok(directory)
    }

    #[test]
    fn every_form_is_unpacked() {
        for form in FORMS {
            let directory = unpacked(&made(&files(), form)).unwrap();
            let read = |path: &str| std::fs::read_to_string(directory.path().join("tree").join(path)).ok();
            assert_eq!(read("boot/vmlinuz-1").as_deref(), Some("kernel"));
            assert_eq!(read("usr/lib/modules/1/a.ko").as_deref(), Some("module"));
            assert_eq!(read("etc/other"), None);
        }
    }

    #[test]
    fn what_is_no_package_is_refused_with_the_reason() {
        let refused = |bytes: &[u8]| unpacked(bytes).unwrap_err();
        assert!(
            refused(b"no package").starts_with("package a.deb is not usable: it is not a Debian package")
        );
        let other = made(&files(), (".bz2", Packing::Plain));
        assert!(
            refused(&other)
                .ends_with("data.tar.bz2 is compressed in a way that is not known (gz, xz and zst are)")
        );
        let mut empty = ar::Builder::new(Vec::new());
        empty.append(&ar::Header::new(b"debian-binary".to_vec(), 0), &b""[..]).unwrap();
        assert!(refused(&empty.into_inner().unwrap()).ends_with("it holds no data.tar"));
        for form in FORMS {
            // Hardly compressible.
            let noise = std::iter::successors(Some(1_u32), |seed| {
                Some(seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223))
            });
            let noise: Vec<u8> = noise.map(|seed| seed.to_be_bytes()[0]).take(50_000).collect();
            let whole = made(&[("boot/vmlinuz-1".to_owned(), noise)], form);
            let error = refused(whole.get(..whole.len() - 20_000).unwrap());
            assert!(error.contains("it is cut short or damaged"), "{form:?}: {error}");
            if form.1 != Packing::Plain {
                let error = refused(whole.get(..whole.len() - 5).unwrap());
                assert!(error.contains("it is cut short or damaged"), "{form:?}: {error}");
            }
        }
    }

    #[test]
    fn paths_stay_below_the_directory() {
        assert_eq!(plain(Path::new("./boot/x")), Some("boot/x".into()));
        for path in ["/boot/x", "boot/../../x", ".."] {
            assert_eq!(plain(Path::new(path)), None, "{path}");
        }
    }

    proptest! {
        #[test]
        fn damage_never_panics(form in 0..4usize, at: prop::sample::Index, byte: u8) {
            let mut bytes = made(&files(), FORMS[form]);
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = unpacked(&bytes);
        }
    }
}
