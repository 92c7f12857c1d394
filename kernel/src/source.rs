//! Where the kernel's source comes from: the distribution's source package, or a tarball.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Doing as _;
use crate::run::run;
use crate::{Error, Progress};

/// Series of the kernel that the fragments are written for. A source of another series is refused unless it is asked
/// for by version.
pub const SERIES: &str = "6.1";
/// Version that was built and booted last by the project's own tests.
pub const TESTED: &str = "6.1.192";
/// Where Debian's `linux-source-6.1` puts it.
const DEBIAN_TARBALL: &str = "/usr/src/linux-source-6.1.tar.xz";
const DEBIAN_PACKAGE: &str = "linux-source-6.1";

/// Unpacks a source into a directory and returns the top of the tree and its version.
pub fn unpack(
    tarball: Option<&Path>,
    wanted: Option<&str>,
    into: &Path,
    progress: &dyn Progress,
) -> Result<(PathBuf, String), Error> {
    let tarball = match tarball {
        Some(path) if path.exists() => path.to_owned(),
        Some(path) => return Err(Error::NoSource { looked: path.to_owned() }),
        None => of_distribution(into, progress)?,
    };
    if tarball.is_dir() {
        let version = version_of(&tarball)?;
        return accept(tarball, version, wanted);
    }
    let tree = into.join("source");
    std::fs::create_dir_all(&tree).doing("make", &tree)?;
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--strip-components=1", "--file"]).arg(&tarball).arg("--directory").arg(&tree);
    run(&mut tar, "tar", progress)?;
    let version = version_of(&tree)?;
    accept(tree, version, wanted)
}

fn accept(tree: PathBuf, version: String, wanted: Option<&str>) -> Result<(PathBuf, String), Error> {
    let prefix = wanted.unwrap_or(SERIES);
    let same = version == prefix || version.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('.'));
    if same { Ok((tree, version)) } else { Err(Error::Version { found: version, wanted: prefix.to_owned() }) }
}

/// The installed source package, or its archive downloaded, which needs no privilege.
fn of_distribution(into: &Path, progress: &dyn Progress) -> Result<PathBuf, Error> {
    let installed = PathBuf::from(DEBIAN_TARBALL);
    if installed.exists() {
        return Ok(installed);
    }
    let missing = || Error::NoSource { looked: installed.clone() };
    let package = download(DEBIAN_PACKAGE, into, progress).map_err(|_| missing())?;
    let unpacked = into.join("package");
    let mut extract = Command::new("dpkg-deb");
    extract.arg("--extract").arg(&package).arg(&unpacked);
    run(&mut extract, "dpkg", progress)?;
    let tarball = unpacked.join(DEBIAN_TARBALL.trim_start_matches('/'));
    if tarball.exists() { Ok(tarball) } else { Err(missing()) }
}

/// Downloads a Debian package into a directory with the machine's own package sources.
pub(crate) fn download(package: &str, into: &Path, progress: &dyn Progress) -> Result<PathBuf, Error> {
    let mut command = Command::new("apt-get");
    // As root, apt gives its rights away for the download and could then not write here.
    command.args(["download", "-q", "-o", "APT::Sandbox::User=root", package]).current_dir(into);
    run(&mut command, "apt", progress)?;
    let entries = std::fs::read_dir(into).doing("read", into)?;
    let mut found = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let is_it = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(&format!("{package}_")) && name.ends_with(".deb")
    };
    found.find(is_it).ok_or_else(|| Error::malformed(package, "apt-get stored no file of that name"))
}

/// Version of a source tree, from its top Makefile.
pub fn version_of(tree: &Path) -> Result<String, Error> {
    let path = tree.join("Makefile");
    let text = std::fs::read_to_string(&path).doing("read", &path)?;
    let value = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix('='))?;
        Some(line.trim().to_owned())
    };
    match (value("VERSION"), value("PATCHLEVEL"), value("SUBLEVEL")) {
        (Some(version), Some(patch), Some(sub)) => Ok(format!("{version}.{patch}.{sub}")),
        _ => Err(Error::malformed(tree.display().to_string(), "it is not the source of a Linux kernel")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Silent;

    #[test]
    fn a_source_is_accepted_by_its_version() {
        let directory = tempfile::tempdir().unwrap();
        let tree = directory.path().join("linux");
        std::fs::create_dir(&tree).unwrap();
        std::fs::write(tree.join("Makefile"), "VERSION = 6\nPATCHLEVEL = 1\nSUBLEVEL = 17\nEXTRAVERSION =\n")
            .unwrap();
        let unpacked = |wanted| unpack(Some(&tree), wanted, directory.path(), &Silent);
        assert_eq!(unpacked(None).unwrap().1, "6.1.17");
        assert_eq!(unpacked(Some("6.1.17")).unwrap().1, "6.1.17");
        let error = unpacked(Some("6.1.1")).unwrap_err().to_string();
        assert_eq!(error, "the kernel source is version 6.1.17, but 6.1.1 was asked for");
        let tarball = directory.path().join("linux.tar");
        let made = Command::new("tar")
            .arg("-cf")
            .arg(&tarball)
            .arg("-C")
            .arg(directory.path())
            .arg("linux")
            .status();
        assert!(made.unwrap().success());
        let (tree, version) = unpack(Some(&tarball), None, directory.path(), &Silent).unwrap();
        assert_eq!((tree, version.as_str()), (directory.path().join("source"), "6.1.17"));
        std::fs::write(directory.path().join("Makefile"), "all:\n").unwrap();
        assert!(
            version_of(directory.path())
                .unwrap_err()
                .to_string()
                .contains("not the source of a Linux kernel")
        );
        let missing = unpack(Some(Path::new("/nowhere.tar")), None, directory.path(), &Silent).unwrap_err();
        assert!(missing.hint().unwrap().contains("--source FILE"));
    }
}
