//! The disk as an OCI image: one layer with `/disk.qcow2` and, so that init containers of the older system can start a
//! shell in it to copy the disk, the guest program as that shell.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;

use serde_json::json;

use super::{Built, Error, Format, Reporter, Request, Step, created};
use crate::out::{handle, whole};
use crate::reference::Digest;
use crate::save::header;
use crate::source::{Loaded, Quiet};
use crate::store::{Blob, Image, LAYER, Store};
use crate::{push, save};

/// Stores, pushes or exports the image.
pub(super) async fn publish(
    request: &Request,
    loaded: &Loaded,
    disk: File,
    built: &mut Built,
    reporter: &dyn Reporter,
) -> Result<(), Error> {
    reporter.begin(Step::Publish, "");
    let failed = |error| Error::file("write", &request.store, error);
    let mut layer = tempfile::tempfile_in(&request.store).map_err(failed)?;
    write_layer(request, loaded, &handle(&disk), &mut layer).map_err(failed)?;
    drop(disk);
    let image = image(request, loaded, &handle(&layer))?;
    built.image_digest = Some(image.digest().to_string());
    if let Some(reference) = &request.tag {
        Store::open(&request.store)?.put(&image, reference)?;
        built.reference = Some(reference.to_string());
        if request.push {
            push::push(&image, reference, &request.options.network, reporter).await?;
        }
    }
    if let Some(path) = request.file.as_deref().filter(|_| request.format == Format::Oci) {
        let name = request.tag.as_ref().map(ToString::to_string);
        let file = whole(path, |file| save::write(&[(name, &image)], file, &Quiet))
            .map_err(|error| Error::file("write", path, error))?;
        let digest = File::open(handle(&file)).and_then(|mut file| Digest::of_reader(&mut file));
        let (digest, _) = digest.map_err(|error| Error::file("read", path, error))?;
        built.digest = digest.to_string();
    }
    let name = built.reference.as_deref().unwrap_or_default();
    let pushed = if request.push { " and pushed" } else { "" };
    reporter.end(Step::Publish, &format!("{name}{pushed}"));
    Ok(())
}

fn time(loaded: &Loaded) -> u64 {
    u64::try_from(created(loaded.settings.created.as_deref()).seconds).unwrap_or(0)
}

fn write_layer(request: &Request, loaded: &Loaded, disk: &Path, out: &mut File) -> io::Result<()> {
    let time = time(loaded);
    let mut tar = tar::Builder::new(io::BufWriter::new(out));
    let guest = std::fs::read(&request.guest)?;
    tar.append_data(&mut header(guest.len() as u64, 0o755, time), "bin/neonvm-guest", guest.as_slice())?;
    let mut link = header(0, 0o777, time);
    link.set_entry_type(tar::EntryType::Symlink);
    tar.append_link(&mut link, "bin/sh", "neonvm-guest")?;
    let file = File::open(disk)?;
    let size = file.metadata()?.len();
    tar.append_data(&mut header(size, 0o644, time), "disk.qcow2", file)?;
    tar.into_inner()?.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

fn image(request: &Request, loaded: &Loaded, layer: &Path) -> Result<Image, Error> {
    let layer = Blob::file(LAYER, layer)?;
    let created = loaded.settings.created.clone().unwrap_or_else(|| "1970-01-01T00:00:00Z".to_owned());
    let config = json!({
        "created": created,
        "architecture": request.options.platform.architecture,
        "os": "linux",
        "config": { "Env": ["PATH=/bin"], "Labels": labels(loaded) },
        "rootfs": { "type": "layers", "diff_ids": [layer.descriptor.digest.to_string()] },
        "history": [{ "created": created, "created_by": "neonvm-builder" }],
    });
    let annotations = BTreeMap::from([("org.opencontainers.image.created".to_owned(), created)]);
    Ok(Image::new(&config, vec![layer], &annotations)?)
}

/// The source's labels, and where the disk comes from.
fn labels(loaded: &Loaded) -> BTreeMap<String, String> {
    let mut labels = loaded.settings.labels.clone();
    labels.insert("tech.neon.vm.source".to_owned(), loaded.reference.clone());
    labels.insert("tech.neon.vm.source.digest".to_owned(), loaded.digest.to_string());
    labels
}
