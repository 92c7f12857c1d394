//! `image remove`

use neonvm_builder::store::Store;

use super::list;
use crate::args::image::Remove;
use crate::commands::{place, registry};
use crate::env::Env;
use crate::error::{Code, Error, Result};
use crate::report::Report;

/// The local store has no such image.
pub(super) fn missing(name: &str) -> Error {
    Error::new(Code::NotFound, format!("image {name:?} not found"))
        .hint("list the images: neonctl image list")
}

/// Removes images; all names are looked up before the first one goes.
pub(crate) fn run(env: &Env, args: &Remove) -> Result<Report> {
    let directory = place::images(env);
    if !directory.exists() {
        return Err(missing(args.images.first().map_or("", String::as_str)));
    }
    let failed = |error| registry::load_error("cannot remove images", &error);
    let store = Store::open(&directory).map_err(failed)?;
    for name in &args.images {
        store.get(name).map_err(|_| missing(name))?;
    }
    let mut removed = Vec::new();
    for name in &args.images {
        removed.extend(store.remove(name).map_err(failed)?);
    }
    Ok(Report::document(list::document(&removed, None)).note(format!("removed {}", removed.len())))
}
