//! Outputs: written beside their final place and renamed when they are whole.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::path::Path;

use neonvm_disk::image::Image as _;
use neonvm_disk::{qcow2, raw};

use super::{Built, Error, Format, Reporter, Request, Step, file_system, publish};
use crate::out::{handle, whole};
use crate::reference::Digest;
use crate::source::Loaded;

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
        write_qcow2(&image, &mut file, &progress)
            .map_err(|error| Error::file("write", &request.store, error))?;
        disk = Some(file);
    }
    let mut written = None;
    if let Some(path) = &request.file
        && request.format != Format::Oci
    {
        let file = whole(path, |file| match (request.format, &mut disk) {
            (Format::Raw, _) => raw::write(&image, file, &progress),
            (_, Some(disk)) => io::copy(&mut File::open(handle(disk))?, file).map(|_| ()),
            (_, None) => write_qcow2(&image, file, &progress),
        });
        written = Some(file.map_err(|error| Error::file("write", path, error))?);
    }
    reporter.finished("disk");
    if let Some(path) = &written.as_ref().or(disk.as_ref()).map(handle) {
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
    let out = io::BufWriter::with_capacity(1 << 20, file);
    // The kind of an error decides about its hint.
    qcow2::write(image, out, progress).map_err(|error| match error {
        qcow2::Error::Io { source, .. } => source,
        other => io::Error::other(other),
    })
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
