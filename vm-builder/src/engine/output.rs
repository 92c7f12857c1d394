//! Outputs: written beside their final place and moved there when they are whole.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::path::Path;

use neonvm_disk::image::Image as _;
use neonvm_disk::{qcow2, raw};

use super::{Built, Error, Format, Reporter, Request, Step, file_system, publish};
use crate::reference::Digest;
use crate::source::Loaded;

/// Writes everything the request asks for.
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
    // The writers tell how far they are; a second disk begins at zero again.
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

/// A file that appears when it is whole. What had its name stays until then. Until then it has no name of its own
/// either (where the file system can do that), so that nothing is left whenever and however the process ends.
pub(crate) fn whole(path: &Path, fill: impl FnOnce(&mut File) -> io::Result<()>) -> Result<(), Error> {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let attempt = || -> io::Result<()> {
        let mut file = tempfile::tempfile_in(directory)?;
        fill(&mut file)?;
        // Temporary files are private; outputs are like any other file.
        file.set_permissions(std::fs::Permissions::from_mode(0o644))?;
        file.sync_all()?;
        // A link cannot replace a file: it gets a name for a moment, and that one is moved.
        let name =
            tempfile::Builder::new().prefix(".neonvm-").make_in(directory, |name| link(&file, name))?;
        name.into_temp_path().persist(path).map_err(|error| error.error)
    };
    attempt().map_err(|error| failed(path, error))
}

fn link(file: &File, name: &Path) -> io::Result<()> {
    use rustix::fs::{AtFlags, CWD, linkat};
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
