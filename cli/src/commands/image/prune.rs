//! `image prune`

use neonvm_builder::cache::Cache;
use neonvm_builder::store::Store;
use serde_json::json;

use crate::args::image::Prune;
use crate::commands::{place, registry};
use crate::env::Env;
use crate::error::{Code, Error, Result};
use crate::report::{API_VERSION, Document, Report, left, right};
use crate::settings;

/// Frees what nothing needs.
pub(crate) fn run(env: &Env, args: &Prune) -> Result<Report> {
    let failed = |error| registry::load_error("cannot prune", &error);
    let unused_for = match &args.unused_for {
        None => None,
        Some(text) => Some(settings::duration(text).ok_or_else(|| {
            Error::new(Code::Usage, format!("{text:?} is not valid for --unused-for"))
                .hint("write it as 30m or 24h")
        })?),
    };
    let (images, cache) = (place::images(env), place::cache(env, None));
    let from_images = if images.exists() {
        Store::open(&images).and_then(|store| store.prune()).map_err(failed)?
    } else {
        0
    };
    let from_cache = if cache.exists() {
        Cache::open(&cache).and_then(|cache| cache.prune(unused_for)).map_err(failed)?.bytes
    } else {
        0
    };
    let row = |what: &str, freed: u64| vec![what.to_owned(), place::bytes(freed)];
    Ok(Report::document(Document {
        value: json!({ "apiVersion": API_VERSION, "kind": "Prune", "images": from_images, "cache": from_cache }),
        names: vec!["store/images".to_owned(), "store/cache".to_owned()],
        text: None,
        columns: vec![left("STORE"), right("FREED")],
        rows: vec![row("images", from_images), row("cache", from_cache)],
    }))
}
