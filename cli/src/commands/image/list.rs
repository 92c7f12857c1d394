//! `image list`

use neonvm_builder::store::{Entry, Store};
use serde_json::json;

use super::usage::{self, Usage};
use crate::args::image::List;
use crate::commands::{place, registry};
use crate::env::Env;
use crate::error::Result;
use crate::render;
use crate::report::{API_VERSION, Document, Report, left, right, wide};
use crate::settings::Settings;

pub(crate) fn run(env: &Env, settings: &Settings, args: &List) -> Result<Report> {
    let failed = |error| registry::load_error("cannot list images", &error);
    let directory = place::images(env);
    let all = if directory.exists() {
        Store::open(&directory).and_then(|store| store.list()).map_err(failed)?
    } else {
        Vec::new()
    };
    // Without images there is nothing to request from the cluster.
    let usage = if all.is_empty() { Ok(Usage::default()) } else { usage::look(env, settings) };
    let note = usage.as_ref().err().map(|why| format!("USED BY is unknown: {why}"));
    let mut document = document(&all, Some(usage.ok().as_ref()));
    if let Some(field) = &args.sort_by {
        render::sort(&mut document, field)?;
    }
    let report = note.into_iter().fold(Report::document(document), Report::note);
    Ok(if all.is_empty() {
        report.note("no images; build one: neonctl vm build --from IMAGE -t NAME")
    } else {
        report
    })
}

/// Images as a table and a list. `usage`: None leaves the users out; of an unknown usage each image has `?`.
pub(super) fn document(all: &[Entry], usage: Option<Option<&Usage>>) -> Document {
    let name = |entry: &Entry| entry.reference.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
    let short = |entry: &Entry| entry.digest.hex().chars().take(12).collect::<String>();
    let users = |entry: &Entry| usage.map(|usage| usage.map(|usage| usage.of(entry)));
    let items: Vec<_> = all
        .iter()
        .map(|entry| {
            let mut item = json!({ "reference": entry.reference.as_ref().map(ToString::to_string),
                "digest": entry.digest.to_string(), "size": entry.size, "platform": entry.platform,
                "created": entry.made().map(|time| time.to_string()), "stored": entry.stored });
            if let (Some(users), Some(item)) = (users(entry), item.as_object_mut()) {
                item.insert("usedBy".to_owned(), json!(users));
            }
            item
        })
        .collect();
    let mut columns = vec![left("NAME"), left("DIGEST"), right("SIZE"), left("CREATED"), wide("PLATFORM")];
    columns.extend(usage.is_some().then(|| left("USED BY")));
    Document {
        value: json!({ "apiVersion": API_VERSION, "kind": "ImageList", "items": items }),
        names: all.iter().map(|entry| format!("image/{}", entry.digest)).collect(),
        text: None,
        columns,
        rows: all
            .iter()
            .map(|entry| {
                let created = entry.made().map_or_else(|| "-".to_owned(), render::age);
                let mut row = vec![
                    name(entry),
                    short(entry),
                    crate::render::bytes(entry.size),
                    created,
                    entry.platform.clone(),
                ];
                row.extend(users(entry).map(|users| usage::cell(users.as_deref())));
                row
            })
            .collect(),
    }
}
