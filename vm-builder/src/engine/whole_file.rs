//! Files that appear complete or not at all.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, open};
use rustix::io::Errno;

use super::Error;

/// How files begin that have a name before they are whole.
const PREFIX: &str = ".neonvm-";

/// A file that appears when it is whole. What had its name stays until then. Until then the new file has no name
/// either, so that nothing is left whenever and however the process ends; file systems that cannot do that (some
/// overlays and network file systems) get a hidden one.
///
/// # Errors
/// If `fill` fails, or the file cannot be made or renamed.
pub fn whole(path: &Path, fill: impl FnOnce(&mut File) -> io::Result<()>) -> Result<(), Error> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let attempt = match unnamed(directory) {
        Ok(file) => name_when_filled(file, directory, path, fill),
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => move_when_filled(directory, path, fill),
        Err(error) => Err(error.into()),
    };
    attempt.map_err(|error| failed(path, error))
}

fn unnamed(directory: &Path) -> Result<File, Errno> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(open(directory, flags, Mode::RUSR | Mode::WUSR)?.into())
}

fn name_when_filled(
    mut file: File,
    directory: &Path,
    path: &Path,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    fill(&mut file)?;
    finish(&file)?;
    // A link cannot replace a file: it gets a temporary name, and is then renamed.
    let name = tempfile::Builder::new().prefix(PREFIX).make_in(directory, |name| link(&file, name))?;
    name.into_temp_path().persist(path).map_err(|error| error.error)
}

fn move_when_filled(
    directory: &Path,
    path: &Path,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let mut file = tempfile::Builder::new().prefix(PREFIX).tempfile_in(directory)?;
    fill(file.as_file_mut())?;
    finish(file.as_file())?;
    file.persist(path).map(|_| ()).map_err(|error| error.error)
}

/// Temporary files are private; outputs are like any other file.
fn finish(file: &File) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    file.set_permissions(std::fs::Permissions::from_mode(0o644))?;
    file.sync_all()
}

fn link(file: &File, name: &Path) -> io::Result<()> {
    linkat(CWD, handle(file), CWD, name, AtFlags::SYMLINK_FOLLOW)?;
    Ok(())
}

/// A path of an open file, named or not, for as long as it is open.
pub(crate) fn handle(file: &File) -> std::path::PathBuf {
    use std::os::fd::AsRawFd as _;
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

pub(super) fn failed(path: &Path, error: io::Error) -> Error {
    Error::file("write", path, error)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_file_appears_whole_or_not_at_all_with_and_without_a_name_before() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        let names = || std::fs::read_dir(directory.path()).unwrap().count();
        let fill = |text: &'static str| move |file: &mut File| file.write_all(text.as_bytes());
        whole(&path, fill("one")).unwrap();
        move_when_filled(directory.path(), &path, fill("two")).unwrap();
        assert_eq!((std::fs::read_to_string(&path).unwrap().as_str(), names()), ("two", 1));
        let broken = |file: &mut File| file.write_all(b"half").and_then(|()| Err(io::Error::other("broken")));
        assert!(whole(&path, broken).is_err());
        assert!(move_when_filled(directory.path(), &path, broken).is_err());
        assert_eq!((std::fs::read_to_string(&path).unwrap().as_str(), names()), ("two", 1));
        let missing = directory.path().join("no/where");
        assert!(matches!(whole(&missing, fill("x")), Err(Error::File { .. })));
    }
}
