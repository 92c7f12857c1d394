//! `image export`

use neonvm_builder::export::export;
use neonvm_builder::source::{self, Source};
use serde_json::json;

use super::stored;
use crate::args::image::Export;
use crate::commands::{job, place, registry};
use crate::env::Env;
use crate::error::Result;
use crate::render::Reporter;
use crate::report::{API_VERSION, Document, Report, left, right};

/// Writes the disk of an image to a file.
pub(crate) fn run(env: &Env, args: &Export, quiet: bool) -> Result<Report> {
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
        export(&loaded, &out).map_err(|error| registry::build_error(&attempt, &error))
    })?;
    let name = args.out.display().to_string();
    Ok(Report::document(Document {
        value: json!({ "apiVersion": API_VERSION, "kind": "Export", "file": name, "stored": size }),
        names: vec![format!("disk/{name}")],
        text: None,
        columns: vec![left("FILE"), right("STORED")],
        rows: vec![vec![name, place::bytes(size)]],
    }))
}
