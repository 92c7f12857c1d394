//! Images as one archive: a tar of an image layout that is what `docker save` writes as well, so that both
//! `ctr images import` and `docker load` take it.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};

use serde_json::{Value, json};

use crate::reference::Reference;
use crate::source::Progress;
use crate::store::{Blob, BlobContent, Image};

/// Annotations with the name of an image, of the specification and of containerd.
const NAMES: [&str; 2] = ["org.opencontainers.image.ref.name", "io.containerd.image.name"];

/// Writes images with their names. The same images give the same bytes.
pub fn archive(images: &[(Reference, &Image)], out: impl Write, progress: &dyn Progress) -> io::Result<()> {
    let named: Vec<(Option<String>, &Image)> =
        images.iter().map(|(reference, image)| (Some(reference.to_string()), *image)).collect();
    write(&named, out, progress)
}

/// As [`archive`]; an image without a name is `latest`.
pub(crate) fn write(
    images: &[(Option<String>, &Image)],
    out: impl Write,
    progress: &dyn Progress,
) -> io::Result<()> {
    let mut tar = tar::Builder::new(io::BufWriter::new(out));
    let mut add =
        |name: &str, bytes: &[u8]| tar.append_data(&mut header(bytes.len() as u64, 0o644, 0), name, bytes);
    add("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    let entries: Vec<Value> = images.iter().map(|(name, image)| entry(name.as_deref(), image)).collect();
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": entries,
    });
    add("index.json", index.to_string().as_bytes())?;
    let saved: Vec<Value> = images.iter().map(|(name, image)| of_docker(name.as_deref(), image)).collect();
    add("manifest.json", Value::Array(saved).to_string().as_bytes())?;
    let mut done = BTreeSet::new();
    for (_, image) in images {
        let manifest = Blob::bytes(&image.media_type, image.manifest.clone());
        for blob in [&manifest, &image.config].into_iter().chain(&image.layers) {
            if done.insert(blob.descriptor.digest) {
                append(&mut tar, blob, progress)?;
            }
        }
    }
    tar.into_inner()?.into_inner().map_err(io::IntoInnerError::into_error)?.flush()
}

fn entry(name: Option<&str>, image: &Image) -> Value {
    let annotations = match name {
        Some(name) => json!({ NAMES[0]: name, NAMES[1]: name }),
        None => json!({ NAMES[0]: "latest" }),
    };
    json!({
        "mediaType": image.media_type,
        "digest": image.digest().to_string(),
        "size": image.manifest.len(),
        "annotations": annotations,
    })
}

fn of_docker(name: Option<&str>, image: &Image) -> Value {
    let layers: Vec<String> = image.layers.iter().map(path).collect();
    json!({ "Config": path(&image.config), "RepoTags": name.into_iter().collect::<Vec<_>>(), "Layers": layers })
}

fn path(blob: &Blob) -> String {
    format!("blobs/sha256/{}", blob.descriptor.digest.hex())
}

/// The header of a file of root in an archive; `time` in seconds since 1970.
pub(crate) fn header(size: u64, mode: u32, time: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_size(size);
    header.set_mode(mode);
    header.set_mtime(time);
    header.set_uid(0);
    header.set_gid(0);
    header.set_entry_type(tar::EntryType::Regular);
    header
}

struct Reported<'a, R> {
    inner: R,
    task: &'a str,
    progress: &'a dyn Progress,
}

impl<R: Read> Read for Reported<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(into)?;
        self.progress.advanced(self.task, count as u64);
        Ok(count)
    }
}

fn append(tar: &mut tar::Builder<impl Write>, blob: &Blob, progress: &dyn Progress) -> io::Result<()> {
    let size = blob.descriptor.size;
    let task = format!("blob {}", blob.descriptor.digest.hex().get(..12).unwrap_or_default());
    progress.started(&task, Some(size));
    let (mut header, path) = (header(size, 0o644, 0), path(blob));
    match &blob.content {
        BlobContent::Bytes(bytes) => tar.append_data(&mut header, path, bytes.as_slice())?,
        BlobContent::File(from) => {
            let named =
                |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", from.display()));
            let file = File::open(from).map_err(named)?;
            if file.metadata().map_err(named)?.len() != size {
                return Err(io::Error::other(format!("{} is damaged", from.display())));
            }
            tar.append_data(&mut header, path, Reported { inner: file, task: &task, progress })?;
        }
    }
    progress.finished(&task);
    Ok(())
}
