//! `kernel build`

use neonvm_builder::out;
use neonvm_kernel::build::{self, Checked, Options};
use neonvm_kernel::store::{Kernel, Store, VMLINUZ};
use serde_json::json;

use super::{document, failure};
use crate::args::kernel::Build;
use crate::commands::{job, place};
use crate::env::Env;
use crate::error::{Error, Result};
use crate::render::Reporter;
use crate::report::{API_VERSION, Document, Report, left, right};

enum Outcome {
    Checked(Checked),
    Built(Kernel),
}

/// Builds a kernel, or only checks its configuration.
pub(crate) fn run(env: &Env, args: &Build, quiet: bool) -> Result<Report> {
    let options = Options {
        source: args.source.clone(),
        version: args.version.clone(),
        fragments: args.config.clone(),
        jobs: args.jobs,
        name: args.kernel_name.clone(),
        default: !args.no_default,
    };
    let (only_check, default) = (args.check_config, options.default);
    let image = args.image.as_deref().map(super::image::reference).transpose()?;
    let reporter = Reporter::new(env, &args.showing.progress, quiet);
    let store = Store::new(place::kernels(env));
    let outcome = job::run(move || {
        let outcome = if only_check {
            build::check_config(&options, &reporter).map(Outcome::Checked)
        } else {
            build::build(&options, &store, &reporter).map(Outcome::Built)
        };
        outcome.map_err(|error| failure("cannot build a kernel", &error))
    })?;
    match outcome {
        Outcome::Checked(checked) => Ok(Report::document(of_check(&checked))),
        Outcome::Built(kernel) => {
            if let Some(path) = &args.out {
                let kernel = kernel.directory.join(VMLINUZ);
                out::whole(path, |file| std::io::copy(&mut std::fs::File::open(kernel)?, file).map(drop))
                    .map_err(|error| Error::file("write", path, &error))?;
            }
            if let Some(image) = &image {
                super::image::store(env, &kernel, image)?;
            }
            let mark = default.then(|| kernel.manifest.name.clone());
            Ok(Report::document(document(&[kernel], mark.as_deref())))
        }
    }
}

fn of_check(checked: &Checked) -> Document {
    Document {
        value: json!({ "apiVersion": API_VERSION, "kind": "KernelConfig", "version": checked.version,
            "requested": checked.options, "dropped": 0 }),
        names: vec![format!("kernel/{}", checked.version)],
        text: None,
        columns: vec![left("VERSION"), right("REQUESTED"), right("DROPPED")],
        rows: vec![vec![checked.version.clone(), checked.options.to_string(), "0".to_owned()]],
    }
}
