//! `image list`

use neonvm_builder::store::{Entry, Store};
use serde_json::json;

use crate::args::image::List;
use crate::commands::{place, registry};
use crate::env::Env;
use crate::error::Result;
use crate::render;
use crate::report::{API_VERSION, Document, Report, left, right, wide};

/// The images of the store.
pub(crate) fn run(env: &Env, args: &List) -> Result<Report> {
    let failed = |error| registry::load_error("cannot list images", &error);
    let directory = place::images(env);
    let all = if directory.exists() {
        Store::open(&directory).and_then(|store| store.list()).map_err(failed)?
    } else {
        Vec::new()
    };
    let mut document = document(&all);
    if let Some(field) = &args.sort_by {
        render::sort(&mut document, field)?;
    }
    let report = Report::document(document);
    Ok(if all.is_empty() {
        report.note("no images; build one: neonctl vm build --from IMAGE -t NAME")
    } else {
        report
    })
}

/// Images as a table and a list.
pub(super) fn document(all: &[Entry]) -> Document {
    let name = |entry: &Entry| entry.reference.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
    let short = |entry: &Entry| entry.digest.hex().chars().take(12).collect::<String>();
    let items: Vec<_> = all
        .iter()
        .map(|entry| {
            json!({ "reference": entry.reference.as_ref().map(ToString::to_string), "digest": entry.digest.to_string(),
                "size": entry.size, "created": entry.created, "platform": entry.platform })
        })
        .collect();
    Document {
        value: json!({ "apiVersion": API_VERSION, "kind": "ImageList", "items": items }),
        names: all.iter().map(|entry| format!("image/{}", entry.digest)).collect(),
        text: None,
        columns: vec![left("NAME"), left("DIGEST"), right("SIZE"), wide("PLATFORM"), wide("CREATED")],
        rows: all
            .iter()
            .map(|entry| {
                let created = entry.created.clone().unwrap_or_else(|| "-".to_owned());
                vec![name(entry), short(entry), place::bytes(entry.size), entry.platform.clone(), created]
            })
            .collect(),
    }
}
