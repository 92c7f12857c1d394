//! Server-side apply and the ownership of fields (`metadata.managedFields`).
//!
//! [`apply`] merges a configuration into an object and gives its fields to the applier; [`track_update`] follows the
//! fields that any other write changed. Both are pure: the caller hands in the manager's name and the time.

mod collect;
mod compare;
mod conflict;
mod fields;
mod last_applied;
mod managed;
mod merge;
mod typed;
mod validate;

pub use fields::FieldSet;

use serde_json::Value;

use self::collect::collect;
use self::compare::{Difference, compare};
use self::conflict::Conflict;
use self::managed::Entry;
use crate::schema::Schema;
use crate::status::ApiError;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    Apply,
    Update,
}

impl Operation {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// The manager that writes, and when.
#[derive(Clone, Copy, Debug)]
pub struct Manager<'a> {
    /// `fieldManager` of the request, or the first part of its User-Agent.
    pub name: &'a str,
    pub operation: Operation,
    pub api_version: &'a str,
    /// `status`, `scale`, …; empty for the object itself.
    pub subresource: &'a str,
    /// Now, RFC 3339 in UTC with whole seconds.
    pub time: &'a str,
}

/// Manager recorded for fields that existed before the first apply, in an object without managed fields.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Fields that a write through `subresource` cannot change, and therefore cannot own: the status through the object,
/// everything else through the status.
pub fn reset_fields(schema: &Schema, custom: bool, has_status: bool, subresource: &str) -> FieldSet {
    if subresource.is_empty() {
        return if has_status { FieldSet::of_fields(&[&["status"]]) } else { FieldSet::default() };
    }
    if subresource != "status" {
        return FieldSet::default();
    }
    if !custom {
        return FieldSet::of_fields(&[
            &["spec"],
            &["metadata", "deletionTimestamp"],
            &["metadata", "ownerReferences"],
        ]);
    }
    let others = schema.properties.keys().map(String::as_str).filter(|name| *name != "status");
    let mut paths: Vec<Vec<&str>> = others.map(|name| vec![name]).collect();
    paths.extend([vec!["spec"], vec!["metadata"]]);
    FieldSet::of_fields(&paths.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

/// Follows a plain write from `live` (`None`: a creation) to `new`: sets `new`'s `managedFields`.
///
/// Objects that have no ownership stay without. A write through the main path may set `managedFields` itself; `[{}]`
/// clears it.
pub fn track_update(
    live: Option<&Value>,
    new: &mut Value,
    schema: &Schema,
    manager: &Manager<'_>,
    reset: &FieldSet,
) {
    let given = managed::take(new);
    let known = live.and_then(managed::field_of);
    let given = given.filter(|given| manager.subresource.is_empty() && Some(given) != known);
    if given.as_ref().is_some_and(managed::is_reset) {
        return;
    }
    let given = given.and_then(|given| managed::decode(Some(&given)).ok()).filter(|list| !list.is_empty());
    let kept = given.is_none();
    let mut entries = given.unwrap_or_else(|| managed::decode(known).unwrap_or_default());
    if entries.is_empty() && live.is_some() {
        return;
    }
    let difference = compare(schema, live, new).without(reset);
    let touched = own_changes(&mut entries, difference, manager);
    let list = match known {
        Some(known) if kept && !touched => known.clone(),
        _ => {
            managed::cap(&mut entries);
            managed::encode(entries)
        }
    };
    managed::put(new, list);
}

/// Gives changed fields to `manager` and removes deleted fields from all entries. Returns whether any entry changed.
fn own_changes(entries: &mut Vec<Entry>, difference: Difference, manager: &Manager<'_>) -> bool {
    if difference.is_empty() {
        return false;
    }
    let Difference { mut changed, removed } = difference;
    changed.strip_server_fields();
    let mut touched = false;
    let mut own = None;
    for (at, entry) in entries.iter_mut().enumerate() {
        if entry.belongs_to(manager) {
            own = Some(at);
        } else if entry.set.meets(&changed) || entry.set.meets(&removed) {
            entry.set.subtract(&changed);
            entry.set.subtract(&removed);
            touched = true;
        }
    }
    match own.and_then(|at| entries.get_mut(at)) {
        Some(entry) if entry.set.meets(&removed) || !entry.set.contains_all(&changed) => {
            entry.set.subtract(&removed);
            // Losing fields alone does not make an entry newer.
            if !changed.is_empty() {
                manager.time.clone_into(entry.time.get_or_insert_default());
            }
            entry.set.union_with(&changed);
            touched = true;
        }
        Some(_) => {}
        None if !changed.is_empty() => {
            entries.push(Entry::new(manager, changed));
            touched = true;
        }
        None => {}
    }
    touched
}

/// Applies the configuration `applied` as `manager` to `live` (`None`: it is created) and returns the new object,
/// `managedFields` included. Nothing changed: the result equals `live`.
///
/// # Errors
/// 400 for a configuration of another version or with `managedFields`, 409 for conflicts unless `force`, 500 (as the
/// real server) for one that does not fit the schema.
pub fn apply(
    live: Option<&Value>,
    applied: &Value,
    schema: &Schema,
    manager: &Manager<'_>,
    reset: &FieldSet,
    force: bool,
) -> Result<Value, ApiError> {
    check(applied, schema, manager)?;
    let first = attempt(live, applied, schema, manager, reset, force);
    let mut result = match (first, live) {
        (Ok(result), _) => result,
        // Fields that `kubectl apply` set before it supported server-side apply belong to kubectl.
        (Err(Refused::Conflicts(conflicts)), Some(live)) if manager.name == last_applied::KUBECTL => {
            let rest = last_applied::unexplained(conflicts, live, schema, manager.api_version);
            if !rest.is_empty() {
                return Err(conflict::refusal(rest));
            }
            attempt(Some(live), applied, schema, manager, reset, true).map_err(Refused::into_error)?
        }
        (Err(refused), _) => return Err(refused.into_error()),
    };
    if manager.name == last_applied::KUBECTL {
        last_applied::refresh(&mut result, applied);
    }
    Ok(result)
}

enum Refused {
    Conflicts(Vec<Conflict>),
    Other(ApiError),
}

impl Refused {
    fn into_error(self) -> ApiError {
        match self {
            Self::Conflicts(conflicts) => conflict::refusal(conflicts),
            Self::Other(error) => error,
        }
    }
}

/// Judges a configuration as it came, before unknown fields are dropped from it. [`apply`] does this too.
///
/// # Errors
/// As [`apply`] for a configuration of another version, with `managedFields`, or that does not fit the schema.
pub fn check(applied: &Value, schema: &Schema, manager: &Manager<'_>) -> Result<(), ApiError> {
    let text = |key: &str| applied.get(key).and_then(Value::as_str).unwrap_or_default();
    let version = text("apiVersion");
    if version != manager.api_version {
        return Err(ApiError::bad_request(format!(
            "Incorrect version specified in apply patch. Specified patch version: {version}, expected: {}",
            manager.api_version
        )));
    }
    if managed::field_of(applied).is_some_and(|list| !list.is_null()) {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    let misfits = validate::misfits(schema, applied);
    if misfits.is_empty() {
        return Ok(());
    }
    let meta =
        |key: &str| applied.get("metadata").and_then(|meta| meta.get(key)?.as_str()).unwrap_or_default();
    let group_version = if version.contains('/') { version.to_owned() } else { format!("/{version}") };
    Err(ApiError::plain(
        500,
        "",
        format!(
            "failed to create typed patch object ({}/{}; {group_version}, Kind={}): {}",
            meta("namespace"),
            meta("name"),
            text("kind"),
            validate::joined(&misfits)
        ),
    ))
}

fn attempt(
    live: Option<&Value>,
    applied: &Value,
    schema: &Schema,
    manager: &Manager<'_>,
    reset: &FieldSet,
    force: bool,
) -> Result<Value, Refused> {
    let mut entries = managed::decode(live.and_then(managed::field_of)).map_err(|why| {
        Refused::Other(ApiError::plain(500, "", format!("failed to decode managed fields: {why}")))
    })?;
    let mut base = live.cloned().unwrap_or_else(|| Value::Object(serde_json::Map::new()));
    managed::take(&mut base);
    if let (true, Some(_)) = (entries.is_empty(), live) {
        let earlier = Manager { name: BEFORE_FIRST_APPLY, operation: Operation::Update, ..*manager };
        own_changes(&mut entries, compare(schema, None, &base).without(reset), &earlier);
    }
    let former = entries.clone();

    let mut set = collect(schema, applied, 0);
    set.subtract_branches(reset);
    let last = entries.iter().position(|entry| entry.belongs_to(manager)).map(|at| entries.remove(at));
    let mut last_set = last.as_ref().map(|entry| entry.set.clone()).unwrap_or_default();
    last_set.subtract_branches(reset);

    let merged = merge::merge(schema, live.map(|_| &base), Some(applied), 0);
    let next = prune(schema, &merged, &entries, &set, &last_set);
    let difference = compare(schema, Some(&base), &next).without(reset);
    let conflicts: Vec<Conflict> = entries
        .iter()
        .map(|entry| Conflict::with(entry, entry.set.intersection(&difference.changed)))
        .filter(|conflict| !conflict.set.is_empty())
        .collect();
    if !force && !conflicts.is_empty() {
        return Err(Refused::Conflicts(conflicts));
    }
    for entry in &mut entries {
        entry.set.subtract(&difference.changed);
        entry.set.subtract(&difference.removed);
    }
    set.strip_server_fields();
    let mut own = Entry::new(manager, set);
    let same_object = next == base;
    if same_object {
        // An entry's time is when its manager last changed a field; this apply changed none.
        own.time = last.and_then(|last| last.time);
    }
    entries.push(own);
    entries.retain(|entry| !entry.set.is_empty());
    if let Some(live) = live.filter(|_| same_object && same_entries(&entries, &former)) {
        return Ok(live.clone());
    }
    managed::cap(&mut entries);
    let mut result = next;
    managed::take(&mut result);
    managed::put(&mut result, managed::encode(entries));
    Ok(result)
}

fn same_entries(left: &[Entry], right: &[Entry]) -> bool {
    left.len() == right.len() && left.iter().all(|entry| right.contains(entry))
}

/// Removes from `merged` the fields that the manager applied last time, does not apply now, and no other manager owns.
fn prune(schema: &Schema, merged: &Value, others: &[Entry], set: &FieldSet, last: &FieldSet) -> Value {
    if last.is_empty() {
        return merged.clone();
    }
    let named = |set: &FieldSet| set.with_named_parents(schema, 0);
    let all = named(&collect(schema, merged, 0));
    let mut owned = set.clone();
    for entry in others {
        owned.union_with(&entry.set);
    }
    let last = named(last);
    let mut keep = named(&collect(schema, &merge::remove(schema, merged, &last, 0), 0));
    keep.union_with(&named(&owned));
    let mut gone = all.clone();
    gone.subtract(&keep);
    let pruned = merge::remove(schema, merged, &gone, 0);
    // What was removed but was never this manager's comes back.
    let mut gone = all;
    gone.subtract(&named(&collect(schema, &pruned, 0)));
    merge::remove(schema, merged, &gone.intersection(&last), 0)
}

#[cfg(test)]
mod tests;
