//! `image push`

use neonvm_builder::push::push;
use serde_json::json;

use super::{missing, stored};
use crate::args::image::Push;
use crate::commands::{job, registry};
use crate::env::Env;
use crate::error::Result;
use crate::render::Reporter;
use crate::report::{API_VERSION, Document, Report, left};

/// Pushes an image: what the registry lacks, then the manifest.
pub(crate) fn run(env: &Env, args: &Push, quiet: bool) -> Result<Report> {
    let reference = registry::reference(args.to.as_deref().unwrap_or(&args.image))?;
    let network = registry::network(env, &args.access)?;
    let attempt = format!("cannot push {reference}");
    let (_, image) = stored(env, &args.image)?.ok_or_else(|| missing(&args.image))?;
    let reporter = Reporter::new(env, &args.showing.progress, quiet);
    let to = reference.clone();
    let digest = job::run(move || {
        let runtime = job::runtime()?;
        let pushed = runtime.block_on(push(&image, &to, &network, &reporter));
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
