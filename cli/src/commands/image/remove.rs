//! `image remove` and `image prune`

use neonvm_builder::cache::Cache;
use neonvm_builder::store::{Entry, Store};
use serde_json::json;

use super::{list, missing, usage};
use crate::args::image::{Prune, Remove};
use crate::commands::{place, registry};
use crate::env::Env;
use crate::error::{Code, Error, Result};
use crate::report::{API_VERSION, Document, Report, left, right};
use crate::settings::{self, Settings};

/// Removes images; all names are looked up before the first one goes.
pub(crate) fn remove(env: &Env, settings: &Settings, args: &Remove) -> Result<Report> {
    let directory = place::images(env);
    if !directory.exists() {
        return Err(missing(args.images.first().map_or("", String::as_str)));
    }
    let failed = |error| registry::load_error("cannot remove images", &error);
    let store = Store::open(&directory).map_err(failed)?;
    let mut chosen: Vec<Entry> = Vec::new();
    for name in &args.images {
        chosen.extend(store.removal(name).map_err(|_| missing(name))?);
    }
    let note = if args.force { None } else { unused(&usage::look(env, settings), &chosen)? };
    let mut removed = Vec::new();
    for name in &args.images {
        removed.extend(store.remove(name).map_err(failed)?);
    }
    let report = Report::document(list::document(&removed, None)).note(format!("removed {}", removed.len()));
    Ok(note.into_iter().fold(report, Report::note))
}

/// Refuses what a VM uses: it would not start again. Returns a note if that is unknown.
fn unused(usage: &std::result::Result<usage::Usage, String>, chosen: &[Entry]) -> Result<Option<String>> {
    let usage = match usage {
        Ok(usage) => usage,
        Err(why) => return Ok(Some(format!("whether VMs use them is unknown: {why}"))),
    };
    for entry in chosen {
        let users = usage.of(entry);
        if !users.is_empty() {
            let name = entry.reference.as_ref().map_or_else(|| entry.digest.to_string(), ToString::to_string);
            let text = format!("image {name} is in use by {}", usage::cell(Some(&users)));
            return Err(Error::new(Code::Conflict, text)
                .hint("VMs whose image is missing do not start again; delete them first, or use --force"));
        }
    }
    Ok(None)
}

/// Frees what nothing needs.
pub(crate) fn prune(env: &Env, settings: &Settings, args: &Prune) -> Result<Report> {
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
    let row = |what: &str, freed: u64| vec![what.to_owned(), crate::render::bytes(freed)];
    let report = Report::document(Document {
        value: json!({ "apiVersion": API_VERSION, "kind": "Prune", "images": from_images, "cache": from_cache }),
        names: vec!["store/images".to_owned(), "store/cache".to_owned()],
        text: None,
        columns: vec![left("STORE"), right("FREED")],
        rows: vec![row("images", from_images), row("cache", from_cache)],
    });
    Ok(note.into_iter().fold(report, Report::note))
}

#[cfg(test)]
mod tests {
    use super::super::usage::Usage;
    use super::super::usage::tests::{entry, machine};
    use super::*;

    #[test]
    fn what_a_vm_uses_is_not_removed() {
        let usage = Ok(Usage::new(&[machine("a", "pg:1")]));
        let error = unused(&usage, &[entry("other:1", 'c'), entry("pg:1", 'a')]).unwrap_err();
        assert_eq!(error.message, "image docker.io/library/pg:1 is in use by x/a");
        assert!(error.code == Code::Conflict && error.hint.unwrap().contains("--force"));
        assert_eq!(unused(&usage, &[entry("pg:2", 'a'), entry("", 'a')]).unwrap(), None);
        let note = unused(&Err("no cluster".to_owned()), &[entry("pg:1", 'a')]).unwrap();
        assert_eq!(note.as_deref(), Some("whether VMs use them is unknown: no cluster"));
    }
}
