//! `images save`

use neonvm_builder::out;
use neonvm_builder::save::archive;
use neonvm_builder::store::Image;
use serde_json::json;

use super::{fitting, named};
use crate::args::images::Save;
use crate::commands::{job, place};
use crate::env::Env;
use crate::error::{Error, Result};
use crate::render::Reporter;
use crate::report::{API_VERSION, Document, Report, left, right};

/// Writes both images into one archive.
pub(crate) fn run(env: &Env, args: &Save, quiet: bool) -> Result<Report> {
    let images = fitting(env, &args.copied.which, args.copied.any_version)?;
    let names: Vec<String> =
        named(&images, args.copied.registry.as_deref())?.iter().map(|(name, _)| name.to_string()).collect();
    let reporter = Reporter::new(env, &args.copied.showing.progress, quiet);
    let (file, to) = (args.out.clone(), args.copied.registry.clone());
    let size = job::run(move || {
        let named = named(&images, to.as_deref())?;
        let all: Vec<(_, &Image)> = named.into_iter().map(|(name, packed)| (name, &packed.image)).collect();
        let written = out::whole(&file, |file| archive(&all, file, &reporter));
        let length = written.and_then(|written| Ok(written.metadata()?.len()));
        length.map_err(|error| Error::file("write", &file, &error))
    })?;
    let file = args.out.display().to_string();
    Ok(Report::document(Document {
        value: json!({ "apiVersion": API_VERSION, "kind": "SavedImages", "file": file, "size": size, "images": names }),
        names: vec![format!("archive/{file}")],
        text: None,
        columns: vec![left("FILE"), right("SIZE"), left("IMAGES")],
        rows: vec![vec![file, place::bytes(size), names.join(",")]],
    }))
}
