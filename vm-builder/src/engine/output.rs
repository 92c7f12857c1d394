//! Outputs: written beside their final place and renamed when they are whole.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::path::Path;

use neonvm_disk::image::Image as _;
use neonvm_disk::{qcow2, raw};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, open};
use rustix::io::Errno;

use super::{Built, Error, Format, Reporter, Request, Step, file_system, publish};
use crate::reference::Digest;
use crate::source::Loaded;

/// How files begin that have a name before they are whole.
const PREFIX: &str = ".neonvm-";

/// Writes every output of the request.
pub(super) async fn write(
    request: &Request,
    loaded: &Loaded,
    identity: &Digest,
    reporter: &dyn Reporter,
) -> Result<Built, Error> {
    let image = file_system(request, loaded, identity)?;
    let mut built = Built { size: image.length(), source: source(loaded), ..Built::default() };
    reporter.begin(Step::Write, "");
    reporter.started("disk", Some(image.length()));
    // The writers report their progress; a second disk begins at zero again.
    let done = Cell::new(0u64);
    let progress = |bytes: u64| reporter.advanced("disk", bytes.saturating_sub(done.replace(bytes)));
    let as_image = request.tag.is_some() || request.format == Format::Oci;
    let mut disk = None;
    if as_image {
        std::fs::create_dir_all(&request.store)
            .map_err(|error| Error::file("make", &request.store, error))?;
        let mut file = tempfile::tempfile_in(&request.store)
            .map_err(|error| Error::file("write", &request.store, error))?;
        write_qcow2(&image, &mut file, &progress).map_err(|error| failed(&request.store, error))?;
        disk = Some(file);
    }
    if let Some(path) = &request.file
        && request.format != Format::Oci
    {
        whole(path, |file| match (request.format, &mut disk) {
            (Format::Raw, _) => raw::write(&image, file, &progress),
            (_, Some(disk)) => io::copy(&mut File::open(handle(disk))?, file).map(|_| ()),
            (_, None) => write_qcow2(&image, file, &progress),
        })?;
    }
    reporter.finished("disk");
    let whole_disk = request.file.as_deref().filter(|_| request.format != Format::Oci);
    let written = whole_disk.map(Path::to_owned).or(disk.as_ref().map(handle));
    if let Some(path) = &written {
        let digest = File::open(path).and_then(|mut file| Digest::of_reader(&mut file));
        let (digest, _) = digest.map_err(|error| Error::file("read", path, error))?;
        built.digest = digest.to_string();
        built.stored = allocated(path)?;
    }
    built.file.clone_from(&request.file);
    reporter.end(
        Step::Write,
        &format!("{} MiB stored, {} MiB as the VM sees it", built.stored >> 20, built.size >> 20),
    );
    if let Some(disk) = disk {
        publish::publish(request, loaded, disk, &mut built, reporter).await?;
    }
    Ok(built)
}

fn write_qcow2(
    image: &dyn neonvm_disk::image::Image,
    file: &mut File,
    progress: &dyn Fn(u64),
) -> io::Result<()> {
    let options = qcow2::Options { progress, ..qcow2::Options::default() };
    qcow2::write(image, &mut io::BufWriter::new(file), &options).map(|_| ()).map_err(of_writer)
}

/// The kind of an error decides about its hint.
fn of_writer(error: qcow2::Error) -> io::Error {
    match error {
        qcow2::Error::Io { source, .. } => source,
        other => io::Error::other(other),
    }
}

fn source(loaded: &Loaded) -> String {
    let digest = loaded.digest.to_string();
    if loaded.reference.contains(&digest) {
        loaded.reference.clone()
    } else {
        format!("{}@{digest}", loaded.reference)
    }
}

/// Bytes on disk; a raw image is mostly holes.
fn allocated(path: &Path) -> Result<u64, Error> {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = std::fs::metadata(path).map_err(|error| Error::file("look at", path, error))?;
    Ok(metadata.len().min(metadata.blocks() * 512))
}

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
pub(super) fn handle(file: &File) -> std::path::PathBuf {
    use std::os::fd::AsRawFd as _;
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

fn failed(path: &Path, error: io::Error) -> Error {
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
