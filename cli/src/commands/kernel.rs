//! `kernel`

pub(super) mod build;
pub(super) mod fetch;
pub(super) mod image;
pub(super) mod list;
pub(super) mod remove;

use neonvm_kernel::store::Kernel;
use serde_json::{Value, json};

use super::place;
use crate::error::{Code, Error};
use crate::report::{API_VERSION, Document, left, wide};

/// An error of the kernel crate.
pub(super) fn failure(attempt: &str, error: &neonvm_kernel::Error) -> Error {
    use neonvm_kernel::Error as E;
    let code = match error {
        E::NotFound { .. } | E::NoSource { .. } | E::NotPinned { .. } => Code::NotFound,
        E::Missing { .. } => Code::Conflict,
        E::Fragment { .. } | E::Contradiction { .. } | E::Version { .. } => Code::Usage,
        E::Interrupted => Code::Interrupted,
        _ => Code::Failed,
    };
    let mut failure = Error::new(code, attempt).cause(error.to_string());
    match error {
        E::File { source, .. } => failure = failure.cause(crate::error::reason(source)),
        E::Program { output, .. } => failure = output.iter().fold(failure, Error::cause),
        _ => {}
    }
    match error.hint() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// Kernels as a table and a list.
fn document(all: &[Kernel], default: Option<&str>) -> Document {
    let item = |kernel: &Kernel| -> Value {
        let manifest = &kernel.manifest;
        json!({ "name": manifest.name, "version": manifest.version, "origin": manifest.origin, "built": manifest.built,
            "default": default == Some(&manifest.name), "directory": kernel.directory, "files": manifest.files })
    };
    let size = |kernel: &Kernel| {
        let files = [Some(kernel.image()), kernel.initramfs()];
        files.into_iter().flatten().filter_map(|path| Some(path.metadata().ok()?.len())).sum()
    };
    Document {
        value: json!({ "apiVersion": API_VERSION, "kind": "KernelList", "items": all.iter().map(item).collect::<Vec<_>>() }),
        names: all.iter().map(|kernel| format!("kernel/{}", kernel.manifest.name)).collect(),
        text: None,
        columns: vec![left("NAME"), left("DEFAULT"), left("ORIGIN"), left("SIZE"), wide("DIRECTORY")],
        rows: all
            .iter()
            .map(|kernel| {
                let name = kernel.manifest.name.clone();
                let mark = if default == Some(name.as_str()) { "yes" } else { "-" };
                let origin = kernel.manifest.origin.clone();
                vec![
                    name,
                    mark.to_owned(),
                    origin,
                    place::bytes(size(kernel)),
                    kernel.directory.display().to_string(),
                ]
            })
            .collect(),
    }
}
