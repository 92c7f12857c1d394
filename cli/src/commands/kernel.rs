//! `kernel`

use neonvm_api::runner_pod::KERNEL_FILE;
use neonvm_builder::file_image::store_file;
use neonvm_builder::out;
use neonvm_builder::reference::{Digest, Reference};
use neonvm_kernel::build::{Checked, Options};
use neonvm_kernel::fetch::{Options as FetchOptions, Source};
use neonvm_kernel::store::{Kernel, Store, VMLINUZ};
use serde_json::{Value, json};

use crate::args::kernel::{Build, Fetch, Image, List, Remove};
use crate::commands::{job, place, registry};
use crate::env::Env;
use crate::error::{Code, Error, Result};
use crate::render;
use crate::render::Reporter;
use crate::report::{API_VERSION, Document, Report, left, right, wide};
use crate::settings::Settings;

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
                    crate::render::bytes(size(kernel)),
                    kernel.directory.display().to_string(),
                ]
            })
            .collect(),
    }
}

pub(super) fn fetch(env: &Env, settings: &Settings, args: &Fetch, quiet: bool) -> Result<Report> {
    let guest = place::guest(env, settings, args.guest.as_deref(), "amd64")?;
    let reporter = Reporter::new(env, &args.showing.progress, quiet);
    let store = Store::new(place::kernels(env));
    let (source, modules, name) = (source(args), args.module.clone(), args.kernel_name.clone());
    let default = !args.no_default;
    let kernel = job::run(move || {
        let options = FetchOptions { guest: &guest, source, modules, name, default };
        neonvm_kernel::fetch::fetch(&options, &store, &reporter)
            .map_err(|error| failure("cannot fetch a kernel", &error))
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

enum Outcome {
    Checked(Checked),
    Built(Kernel),
}

/// Builds a kernel, or only checks its configuration.
pub(super) fn build(env: &Env, args: &Build, quiet: bool) -> Result<Report> {
    let options = Options {
        source: args.source.clone(),
        version: args.version.clone(),
        fragments: args.config.clone(),
        jobs: args.jobs,
        name: args.kernel_name.clone(),
        default: !args.no_default,
    };
    let (only_check, default) = (args.check_config, options.default);
    let image = args.image.as_deref().map(reference).transpose()?;
    let reporter = Reporter::new(env, &args.showing.progress, quiet);
    let store = Store::new(place::kernels(env));
    let outcome = job::run(move || {
        let outcome = if only_check {
            neonvm_kernel::build::check_config(&options, &reporter).map(Outcome::Checked)
        } else {
            neonvm_kernel::build::build(&options, &store, &reporter).map(Outcome::Built)
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
                store_image(env, &kernel, image)?;
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

pub(super) fn image(env: &Env, args: &Image) -> Result<Report> {
    let reference = reference(&args.tag)?;
    let found = Store::new(place::kernels(env)).get(args.name.as_deref());
    let kernel = found.map_err(|error| failure("cannot make an image of a kernel", &error))?;
    let digest = store_image(env, &kernel, &reference)?;
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

fn reference(text: &str) -> Result<Reference> {
    text.parse().map_err(|error| Error::new(Code::Usage, format!("{text:?} is no name of an image: {error}")))
}

fn store_image(env: &Env, kernel: &Kernel, reference: &Reference) -> Result<Digest> {
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

pub(super) fn list(env: &Env, args: &List) -> Result<Report> {
    let store = Store::new(place::kernels(env));
    let (all, default) = store.list().map_err(|error| failure("cannot list kernels", &error))?;
    let mut document = document(&all, default.as_deref());
    if let Some(field) = &args.sort_by {
        render::sort(&mut document, field)?;
    }
    let report = Report::document(document);
    Ok(if all.is_empty() { report.note("no kernels; get one: neonctl kernel fetch") } else { report })
}

/// Removes kernels; all names are looked up before the first one goes.
pub(super) fn remove(env: &Env, args: &Remove) -> Result<Report> {
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
