//! An image that carries one file, for programs that mount it as a volume: a kernel.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;

use serde_json::json;

use crate::out::handle;
use crate::reference::{Digest, Reference};
use crate::save::header;
use crate::source::Error;
use crate::store::{Blob, Image, LAYER, Store};

/// Stores an image with the file at `path` as `/name` in its only layer. The same file gives the same image. Returns the digest of
/// its manifest.
pub fn store_file(
    store: &Path,
    reference: &Reference,
    (name, path): (&str, &Path),
    architecture: &str,
) -> Result<Digest, Error> {
    let target = Store::open(store)?;
    let mut layer = tempfile::tempfile_in(store).map_err(|error| Error::io("write", store, error))?;
    write_layer(name, path, &mut layer).map_err(|error| Error::io("read", path, error))?;
    let layer = Blob::file(LAYER, handle(&layer))?;
    let config = json!({
        "architecture": architecture,
        "os": "linux",
        "config": {},
        "rootfs": { "type": "layers", "diff_ids": [layer.descriptor.digest.to_string()] },
    });
    let image = Image::new(&config, vec![layer], &BTreeMap::new())?;
    target.put(&image, reference)?;
    Ok(image.digest())
}

fn write_layer(name: &str, path: &Path, out: &mut File) -> io::Result<()> {
    let file = File::open(path)?;
    let mut header = header(file.metadata()?.len(), 0o644, 0);
    let mut tar = tar::Builder::new(io::BufWriter::new(out));
    tar.append_data(&mut header, name, file)?;
    tar.into_inner()?.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_file_gives_the_same_image() {
        let directory = tempfile::tempdir().unwrap();
        let (store, file) = (directory.path().join("store"), directory.path().join("k"));
        std::fs::write(&file, b"kernel").unwrap();
        let put = |reference: &str| {
            store_file(&store, &reference.parse().unwrap(), ("vmlinuz", &file), "amd64").unwrap()
        };
        assert_eq!(put("a:1"), put("b:1"));
        let image = Store::open(&store).unwrap().get("a:1").unwrap();
        assert_eq!((image.digest(), image.layers.len()), (put("a:1"), 1));
    }
}
