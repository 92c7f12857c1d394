//! `kernel image`: a kernel as an image that `kernelImage` of a VM can name.

use neonvm_api::runner_pod::KERNEL_FILE;
use neonvm_builder::file_image::store_file;
use neonvm_builder::reference::{Digest, Reference};
use neonvm_kernel::store::{Kernel, Store, VMLINUZ};
use serde_json::json;

use super::failure;
use crate::args::kernel::Image;
use crate::commands::{place, registry};
use crate::env::Env;
use crate::error::{Code, Error, Result};
use crate::report::{API_VERSION, Document, Report, left};

/// Stores a kernel as an image.
pub(crate) fn run(env: &Env, args: &Image) -> Result<Report> {
    let reference = reference(&args.tag)?;
    let found = Store::new(place::kernels(env)).get(args.name.as_deref());
    let kernel = found.map_err(|error| failure("cannot make an image of a kernel", &error))?;
    let digest = store(env, &kernel, &reference)?;
    let (name, tag) = (kernel.manifest.name, reference.to_string());
    Ok(Report::document(Document {
        value: json!({ "apiVersion": API_VERSION, "kind": "KernelImage", "kernel": name, "image": tag,
            "digest": digest.to_string() }),
        names: vec![format!("image/{tag}")],
        text: Some(format!("image/{tag} stored; push it: neonctl image push {tag}")),
        columns: vec![left("KERNEL"), left("IMAGE"), left("DIGEST")],
        rows: vec![vec![name, tag.clone(), digest.to_string()]],
    }))
}

/// The name of an image.
pub(super) fn reference(text: &str) -> Result<Reference> {
    text.parse().map_err(|error| Error::new(Code::Usage, format!("{text:?} is no name of an image: {error}")))
}

/// Puts the kernel into the local image store.
pub(super) fn store(env: &Env, kernel: &Kernel, reference: &Reference) -> Result<Digest> {
    let name = &kernel.manifest.name;
    if kernel.initramfs().is_some() {
        return Err(Error::new(
            Code::Conflict,
            format!("kernel {name} needs its initramfs, which an image does not carry"),
        )
        .hint("build a kernel that needs none: neonctl kernel build"));
    }
    let file = kernel.directory.join(VMLINUZ);
    store_file(&place::images(env), reference, (KERNEL_FILE, &file), place::architecture())
        .map_err(|error| registry::load_error("cannot store the image", &error))
}
