//! `kernel list`

use neonvm_kernel::store::Store;

use super::{document, failure};
use crate::args::kernel::List;
use crate::commands::place;
use crate::env::Env;
use crate::error::Result;
use crate::render;
use crate::report::Report;

/// The kernels of this machine.
pub(crate) fn run(env: &Env, args: &List) -> Result<Report> {
    let store = Store::new(place::kernels(env));
    let (all, default) = store.list().map_err(|error| failure("cannot list kernels", &error))?;
    let mut document = document(&all, default.as_deref());
    if let Some(field) = &args.sort_by {
        render::sort(&mut document, field)?;
    }
    let report = Report::document(document);
    Ok(if all.is_empty() { report.note("no kernels; get one: neonctl kernel fetch") } else { report })
}
