//! `image pull`

use neonvm_builder::pull::pull;
use serde_json::json;

use crate::args::image::Pull;
use crate::commands::{job, place, registry};
use crate::env::Env;
use crate::error::Result;
use crate::render::Reporter;
use crate::report::{API_VERSION, Document, Report, left};

/// Pulls an image into the local store.
pub(crate) fn run(env: &Env, args: &Pull, quiet: bool) -> Result<Report> {
    let reference = registry::reference(&args.image)?;
    let options = registry::options(env, &args.registry, args.arch.as_deref())?;
    let attempt = format!("cannot pull {reference}");
    let (reporter, directory, name) =
        (Reporter::new(env, &args.showing.progress, quiet), place::images(env), reference.to_string());
    let digest = job::run(move || {
        let runtime = job::runtime()?;
        let pulled = runtime.block_on(pull(&reference, &options, &directory, &reporter));
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
