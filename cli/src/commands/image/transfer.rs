//! `image export`, `image pull` and `image push`

use neonvm_builder::source::{self, Source};
use neonvm_builder::{export, pull, push};
use serde_json::json;

use super::{missing, stored};
use crate::args::image::{Export, Pull, Push};
use crate::commands::{job, place, registry};
use crate::env::Env;
use crate::error::Result;
use crate::render::Reporter;
use crate::report::{API_VERSION, Document, Report, left, right};

/// Writes the disk of an image to a file.
pub(crate) fn export(env: &Env, args: &Export, quiet: bool) -> Result<Report> {
    let attempt = format!("cannot export {}", args.image);
    let options = registry::options(env, &args.registry, None)?;
    let source = match stored(env, &args.image)? {
        Some((store, image)) => {
            Source::OciLayout { path: store.root().to_owned(), name: Some(image.digest().to_string()) }
        }
        None => Source::parse(&args.image).map_err(|error| registry::load_error(&attempt, &error))?,
    };
    let (reporter, out) = (Reporter::new(env, &args.showing.progress, quiet), args.out.clone());
    let size = job::run(move || {
        let runtime = job::runtime()?;
        let loaded = runtime
            .block_on(source::load(&source, &options, &reporter))
            .map_err(|error| registry::load_error(&attempt, &error))?;
        export::export(&loaded, &out).map_err(|error| registry::build_error(&attempt, &error))
    })?;
    let name = args.out.display().to_string();
    Ok(Report::document(Document {
        value: json!({ "apiVersion": API_VERSION, "kind": "Export", "file": name, "stored": size }),
        names: vec![format!("disk/{name}")],
        text: None,
        columns: vec![left("FILE"), right("STORED")],
        rows: vec![vec![name, crate::render::bytes(size)]],
    }))
}

/// Pulls an image into the local store.
pub(crate) fn pull(env: &Env, args: &Pull, quiet: bool) -> Result<Report> {
    let reference = registry::reference(&args.image)?;
    let options = registry::options(env, &args.registry, args.arch.as_deref())?;
    let attempt = format!("cannot pull {reference}");
    let (reporter, directory, name) =
        (Reporter::new(env, &args.showing.progress, quiet), place::images(env), reference.to_string());
    let digest = job::run(move || {
        let runtime = job::runtime()?;
        let pulled = runtime.block_on(pull::pull(&reference, &options, &directory, &reporter));
        pulled.map_err(|error| registry::load_error(&attempt, &error))
    })?;
    let digest = digest.to_string();
    Ok(Report::document(Document {
        value: json!({ "apiVersion": API_VERSION, "kind": "PulledImage", "reference": name, "digest": digest }),
        names: vec![format!("image/{digest}")],
        text: None,
        columns: vec![left("IMAGE"), left("DIGEST")],
        rows: vec![vec![name, digest]],
    }))
}

/// Pushes an image: what the registry lacks, then the manifest.
pub(crate) fn push(env: &Env, args: &Push, quiet: bool) -> Result<Report> {
    let reference = registry::reference(args.to.as_deref().unwrap_or(&args.image))?;
    let network = registry::network(env, &args.access)?;
    let attempt = format!("cannot push {reference}");
    let (_, image) = stored(env, &args.image)?.ok_or_else(|| missing(&args.image))?;
    let reporter = Reporter::new(env, &args.showing.progress, quiet);
    let to = reference.clone();
    let digest = job::run(move || {
        let runtime = job::runtime()?;
        let pushed = runtime.block_on(push::push(&image, &to, &network, &reporter));
        pushed.map_err(|error| registry::load_error(&attempt, &error))
    })?;
    let (name, digest) = (reference.to_string(), digest.to_string());
    Ok(Report::document(Document {
        value: json!({ "apiVersion": API_VERSION, "kind": "PushedImage", "reference": name, "digest": digest }),
        names: vec![format!("image/{name}")],
        text: None,
        columns: vec![left("IMAGE"), left("DIGEST")],
        rows: vec![vec![name, digest]],
    }))
}
