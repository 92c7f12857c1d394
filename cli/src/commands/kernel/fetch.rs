//! `kernel fetch`

use neonvm_kernel::fetch::{self, Options, Source};
use neonvm_kernel::store::Store;

use super::{document, failure};
use crate::args::kernel::Fetch;
use crate::commands::{job, place};
use crate::env::Env;
use crate::error::Result;
use crate::render::Reporter;
use crate::report::Report;
use crate::settings::Settings;

/// Gets a distribution's kernel.
pub(crate) fn run(env: &Env, settings: &Settings, args: &Fetch, quiet: bool) -> Result<Report> {
    let guest = place::guest(env, settings, args.guest.as_deref(), "amd64")?;
    let reporter = Reporter::new(env, &args.showing.progress, quiet);
    let store = Store::new(place::kernels(env));
    let (source, modules, name) = (source(args), args.module.clone(), args.kernel_name.clone());
    let default = !args.no_default;
    let kernel = job::run(move || {
        let options = Options { guest: &guest, source, modules, name, default };
        fetch::fetch(&options, &store, &reporter).map_err(|error| failure("cannot fetch a kernel", &error))
    })?;
    let mark = default.then(|| kernel.manifest.name.clone());
    let report = Report::document(document(&[kernel], mark.as_deref()));
    Ok(if default { report.note("VMs of local clusters boot it: neonctl local up") } else { report })
}

fn source(args: &Fetch) -> Source {
    match &args.package {
        Some(path) => Source::File { path: path.clone(), sha256: args.sha256.clone() },
        None if args.mirror.is_none() && args.version.is_none() => Source::Any,
        None => Source::Mirror { url: args.mirror.clone(), version: args.version.clone() },
    }
}
