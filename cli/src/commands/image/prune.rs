//! `image prune`

use neonvm_builder::cache::Cache;
use neonvm_builder::store::Store;
use serde_json::json;

use super::usage;
use crate::args::image::Prune;
use crate::commands::{place, registry};
use crate::env::Env;
use crate::error::{Code, Error, Result};
use crate::report::{API_VERSION, Document, Report, left, right};
use crate::settings::{self, Settings};

/// Frees what nothing needs.
pub(crate) fn run(env: &Env, settings: &Settings, args: &Prune) -> Result<Report> {
    let failed = |error| registry::load_error("cannot prune", &error);
    let unused_for = match &args.unused_for {
        None => None,
        Some(text) => Some(settings::duration(text).ok_or_else(|| {
            Error::new(Code::Usage, format!("{text:?} is not valid for --unused-for"))
                .hint("write it as 30m or 24h")
        })?),
    };
    let (images, cache) = (place::images(env), place::cache(env, None));
    let mut note = None;
    let from_images = if images.exists() {
        let usage = usage::look(env, settings);
        note = usage
            .as_ref()
            .err()
            .map(|why| format!("which images VMs use by their digests is unknown: {why}"));
        // An image whose name was given to another one may be used by its digest.
        let keep = |digest| usage.as_ref().is_ok_and(|usage| usage.has(digest));
        Store::open(&images).and_then(|store| store.prune_except(&keep)).map_err(failed)?
    } else {
        0
    };
    let from_cache = if cache.exists() {
        Cache::open(&cache).and_then(|cache| cache.prune(unused_for)).map_err(failed)?.bytes
    } else {
        0
    };
    let row = |what: &str, freed: u64| vec![what.to_owned(), place::bytes(freed)];
    let report = Report::document(Document {
        value: json!({ "apiVersion": API_VERSION, "kind": "Prune", "images": from_images, "cache": from_cache }),
        names: vec!["store/images".to_owned(), "store/cache".to_owned()],
        text: None,
        columns: vec![left("STORE"), right("FREED")],
        rows: vec![row("images", from_images), row("cache", from_cache)],
    });
    Ok(note.into_iter().fold(report, Report::note))
}
