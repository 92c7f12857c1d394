//! `images push`

use neonvm_builder::push::push;
use neonvm_builder::reference::Digest;
use serde_json::json;

use super::{fitting, named};
use crate::args::images::Push;
use crate::commands::{job, registry};
use crate::env::Env;
use crate::error::Result;
use crate::render::Reporter;
use crate::report::{API_VERSION, Document, Report, left};

/// Pushes both images: what the registry lacks, then the manifests.
pub(crate) fn run(env: &Env, args: &Push, quiet: bool) -> Result<Report> {
    let images = fitting(env, &args.which, args.any_version)?;
    // Named before anything is sent.
    named(&images, Some(&args.registry))?;
    let network = registry::network(env, &args.access)?;
    let (reporter, to) = (Reporter::new(env, &args.showing.progress, quiet), args.registry.clone());
    let pushed = job::run(move || {
        let runtime = job::runtime()?;
        let mut pushed: Vec<(String, Digest)> = Vec::new();
        for (reference, packed) in named(&images, Some(&to))? {
            let attempt = format!("cannot push {reference}");
            let digest = runtime
                .block_on(push(&packed.image, &reference, &network, &reporter))
                .map_err(|error| registry::load_error(&attempt, &error))?;
            pushed.push((reference.to_string(), digest));
        }
        Ok(pushed)
    })?;
    let item = |(name, digest): &(String, Digest)| json!({ "reference": name, "digest": digest.to_string() });
    Ok(Report::document(Document {
        value: json!({ "apiVersion": API_VERSION, "kind": "PushedImageList",
            "items": pushed.iter().map(item).collect::<Vec<_>>() }),
        names: pushed.iter().map(|(name, _)| format!("image/{name}")).collect(),
        text: None,
        columns: vec![left("IMAGE"), left("DIGEST")],
        rows: pushed.iter().map(|(name, digest)| vec![name.clone(), digest.to_string()]).collect(),
    }))
}
