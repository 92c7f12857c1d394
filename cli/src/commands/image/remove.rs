//! `image remove`

use neonvm_builder::store::{Entry, Store};

use super::usage;
use super::{list, missing};
use crate::args::image::Remove;
use crate::commands::{place, registry};
use crate::env::Env;
use crate::error::{Code, Error, Result};
use crate::report::Report;
use crate::settings::Settings;

/// Removes images; all names are looked up before the first one goes.
pub(crate) fn run(env: &Env, settings: &Settings, args: &Remove) -> Result<Report> {
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
