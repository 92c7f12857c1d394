//! `kernel remove`

use neonvm_kernel::store::Store;

use super::{document, failure};
use crate::args::kernel::Remove;
use crate::commands::place;
use crate::env::Env;
use crate::error::Result;
use crate::report::Report;

/// Removes kernels; all names are looked up before the first one goes.
pub(crate) fn run(env: &Env, args: &Remove) -> Result<Report> {
    let store = Store::new(place::kernels(env));
    let failed = |error| failure("cannot remove kernels", &error);
    let found =
        args.names.iter().map(|name| store.get(Some(name))).collect::<std::result::Result<Vec<_>, _>>();
    let found = found.map_err(failed)?;
    for name in &args.names {
        store.remove(name).map_err(failed)?;
    }
    Ok(Report::document(document(&found, None)).note(format!("removed {}", found.len())))
}
