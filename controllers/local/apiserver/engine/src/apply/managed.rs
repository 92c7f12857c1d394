//! `metadata.managedFields`: which manager set which fields, read into entries and written back.

use serde_json::{Map, Value, json};

use super::fields::FieldSet;
use super::{Manager, Operation};

/// More `Update` entries than this are folded together, oldest first.
const MAX_UPDATE_ENTRIES: usize = 10;

/// Manager that holds the fields of folded entries.
const ANCIENT: &str = "ancient-changes";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) manager: String,
    pub(super) operation: Operation,
    pub(super) api_version: String,
    pub(super) subresource: String,
    pub(super) time: Option<String>,
    pub(super) set: FieldSet,
}

impl Entry {
    pub(super) fn new(manager: &Manager<'_>, set: FieldSet) -> Self {
        Self {
            manager: manager.name.to_owned(),
            operation: manager.operation,
            api_version: manager.api_version.to_owned(),
            subresource: manager.subresource.to_owned(),
            time: Some(manager.time.to_owned()),
            set,
        }
    }

    /// Whether this is the entry of `manager`: an applier has one for all versions.
    pub(super) fn belongs_to(&self, manager: &Manager<'_>) -> bool {
        self.operation == manager.operation
            && self.manager == manager.name
            && self.subresource == manager.subresource
            && (self.operation == Operation::Apply || self.api_version == manager.api_version)
    }

    fn decode(value: &Value) -> Result<Self, String> {
        let text = |key: &str| value.get(key).and_then(Value::as_str);
        let operation = match text("operation") {
            Some("Apply") => Operation::Apply,
            Some("Update") => Operation::Update,
            other => return Err(format!("unknown operation {:?}", other.unwrap_or_default())),
        };
        if text("fieldsType") != Some("FieldsV1") {
            return Err(format!("unknown fieldsType {:?}", text("fieldsType").unwrap_or_default()));
        }
        Ok(Self {
            manager: text("manager").unwrap_or_default().to_owned(),
            operation,
            api_version: text("apiVersion").unwrap_or_default().to_owned(),
            subresource: text("subresource").unwrap_or_default().to_owned(),
            time: text("time").map(str::to_owned),
            set: FieldSet::decode(value.get("fieldsV1").unwrap_or(&Value::Null))?,
        })
    }

    fn encode(&self) -> Value {
        let mut map = Map::new();
        map.insert("manager".to_owned(), Value::from(self.manager.as_str()));
        map.insert("operation".to_owned(), Value::from(self.operation.as_str()));
        map.insert("apiVersion".to_owned(), Value::from(self.api_version.as_str()));
        if let Some(time) = &self.time {
            map.insert("time".to_owned(), Value::from(time.as_str()));
        }
        map.insert("fieldsType".to_owned(), Value::from("FieldsV1"));
        map.insert("fieldsV1".to_owned(), self.set.encode());
        if !self.subresource.is_empty() {
            map.insert("subresource".to_owned(), Value::from(self.subresource.as_str()));
        }
        Value::Object(map)
    }
}

pub(super) fn field_of(object: &Value) -> Option<&Value> {
    object.get("metadata")?.get("managedFields")
}

/// Whether the list is `[{}]`, which requests to clear all ownership.
pub(super) fn is_reset(list: &Value) -> bool {
    matches!(list.as_array().map(Vec::as_slice), Some([Value::Object(only)]) if only.is_empty())
}

/// Reads the list.
///
/// # Errors
/// A text about the first entry that cannot be read.
pub(super) fn decode(list: Option<&Value>) -> Result<Vec<Entry>, String> {
    match list {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(items)) => items.iter().map(Entry::decode).collect(),
        Some(_) => Err("managedFields is not a list".to_owned()),
    }
}

pub(super) fn take(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

/// Puts `list` into an object, unless it is empty.
pub(super) fn put(object: &mut Value, list: Value) {
    if list.as_array().is_none_or(Vec::is_empty) {
        return;
    }
    if let Some(map) = object.as_object_mut()
        && let Some(metadata) = map.entry("metadata").or_insert_with(|| json!({})).as_object_mut()
    {
        metadata.insert("managedFields".to_owned(), list);
    }
}

/// Writes the list in its lasting order: appliers first, then by time and name.
pub(super) fn encode(mut entries: Vec<Entry>) -> Value {
    entries.retain(|entry| !entry.set.is_empty());
    entries.sort_by(|a, b| {
        (a.operation, &a.time, &a.manager, &a.api_version, &a.subresource).cmp(&(
            b.operation,
            &b.time,
            &b.manager,
            &b.api_version,
            &b.subresource,
        ))
    });
    Value::Array(entries.iter().map(Entry::encode).collect())
}

/// Folds the oldest `Update` entries of each version together while there are too many.
pub(super) fn cap(entries: &mut Vec<Entry>) {
    entries.sort_by(|a, b| (&a.time, &a.manager).cmp(&(&b.time, &b.manager)));
    let updates =
        |entries: &[Entry]| entries.iter().filter(|entry| entry.operation == Operation::Update).count();
    while updates(entries) > MAX_UPDATE_ENTRIES {
        let Some((first, second)) = oldest_pair(entries) else { return };
        let Some(newer) = (second < entries.len()).then(|| entries.remove(second)) else { return };
        if let Some(bucket) = entries.get_mut(first) {
            bucket.set.union_with(&newer.set);
            bucket.time = newer.time;
            ANCIENT.clone_into(&mut bucket.manager);
            bucket.subresource.clear();
        }
    }
}

/// The two oldest `Update` entries that share a version; an earlier bucket comes before its next entry.
fn oldest_pair(entries: &[Entry]) -> Option<(usize, usize)> {
    let updates: Vec<(usize, &Entry)> =
        entries.iter().enumerate().filter(|(_, entry)| entry.operation == Operation::Update).collect();
    updates.iter().enumerate().find_map(|(at, (second, entry))| {
        let earlier = updates.iter().take(at).find(|(_, other)| other.api_version == entry.api_version)?;
        Some((earlier.0, *second))
    })
}
