//! `image`

pub(super) mod inspect;
pub(super) mod release;
mod usage;

use neonvm_builder::cache::Cache;
use neonvm_builder::source::{self, Source};
use neonvm_builder::store::{Entry, Image, Store};
use neonvm_builder::{export, pull, push};
use serde_json::json;
use usage::Usage;

use crate::args::image::{Export, List, Prune, Pull, Push, Remove};
use crate::commands::{job, place, registry};
use crate::env::Env;
use crate::error::{Code, Error, Result};
use crate::render::{self, Reporter};
use crate::report::{API_VERSION, Document, Report, left, right, wide};
use crate::settings::{self, Settings};

/// The image that a name or a digest means in the local store, as all commands take it: `hello:1`, its full name, or at least 12 digits of
/// its digest. `None`: there is none.
///
/// # Errors
/// If several have that digest, or the store cannot be read.
fn stored(env: &Env, name: &str) -> Result<Option<(Store, Image)>> {
    use neonvm_builder::source::Error as E;
    let attempt = format!("cannot find image {name:?}");
    let directory = place::images(env);
    if !directory.exists() {
        return Ok(None);
    }
    let found = Store::open(&directory).and_then(|store| {
        let image = store.get(name);
        image.map(|image| (store, image))
    });
    match found {
        Ok(found) => Ok(Some(found)),
        Err(E::ImageNotFound { .. } | E::Invalid(_)) => Ok(None),
        Err(error @ E::Ambiguous { .. }) => Err(Error::new(Code::Usage, attempt)
            .cause(error.to_string())
            .hint("write more digits of the digest")),
        Err(error) => Err(registry::load_error(&attempt, &error)),
    }
}

/// The local store has no such image.
fn missing(name: &str) -> Error {
    Error::new(Code::NotFound, format!("image {name:?} not found"))
        .hint("list the images: neonctl image list; pull one: neonctl image pull")
}

pub(crate) fn list(env: &Env, settings: &Settings, args: &List) -> Result<Report> {
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
fn document(all: &[Entry], usage: Option<Option<&Usage>>) -> Document {
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
    let report = Report::document(document(&removed, None)).note(format!("removed {}", removed.len()));
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

pub(crate) fn export(env: &Env, args: &Export, quiet: bool) -> Result<Report> {
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
        export::export(&loaded, &out).map_err(|error| registry::build_error(&attempt, &error))
    })?;
    let name = args.out.display().to_string();
    Ok(Report::document(Document {
        value: json!({ "apiVersion": API_VERSION, "kind": "Export", "file": name, "stored": size }),
        names: vec![format!("disk/{name}")],
        text: None,
        columns: vec![left("FILE"), right("STORED")],
        rows: vec![vec![name, crate::render::bytes(size)]],
    }))
}

pub(crate) fn pull(env: &Env, args: &Pull, quiet: bool) -> Result<Report> {
    let reference = registry::reference(&args.image)?;
    let options = registry::options(env, &args.registry, args.arch.as_deref())?;
    let attempt = format!("cannot pull {reference}");
    let (reporter, directory, name) =
        (Reporter::new(env, &args.showing.progress, quiet), place::images(env), reference.to_string());
    let digest = job::run(move || {
        let runtime = job::runtime()?;
        let pulled = runtime.block_on(pull::pull(&reference, &options, &directory, &reporter));
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

/// Pushes an image: what the registry lacks, then the manifest.
pub(crate) fn push(env: &Env, args: &Push, quiet: bool) -> Result<Report> {
    let reference = registry::reference(args.to.as_deref().unwrap_or(&args.image))?;
    let network = registry::network(env, &args.access)?;
    let attempt = format!("cannot push {reference}");
    let (_, image) = stored(env, &args.image)?.ok_or_else(|| missing(&args.image))?;
    let reporter = Reporter::new(env, &args.showing.progress, quiet);
    let to = reference.clone();
    let digest = job::run(move || {
        let runtime = job::runtime()?;
        let pushed = runtime.block_on(push::push(&image, &to, &network, &reporter));
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

#[cfg(test)]
mod tests {
    use super::usage::Usage;
    use super::usage::tests::{entry, machine};
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
