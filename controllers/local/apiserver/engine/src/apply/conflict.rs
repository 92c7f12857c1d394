//! Fields that an apply would take from other managers, and the 409 that lists them.

use serde_json::{Map, Value, json};

use super::Operation;
use super::fields::FieldSet;
use super::managed::Entry;
use crate::status::ApiError;

#[derive(Clone, Debug)]
pub(super) struct Conflict {
    manager: String,
    operation: Operation,
    api_version: String,
    subresource: String,
    pub(super) set: FieldSet,
}

impl Conflict {
    pub(super) fn with(entry: &Entry, set: FieldSet) -> Self {
        Self {
            manager: entry.manager.clone(),
            operation: entry.operation,
            api_version: entry.api_version.clone(),
            subresource: entry.subresource.clone(),
            set,
        }
    }

    fn shown(&self) -> String {
        let mut text = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            text.push_str(&format!(" with subresource {:?}", self.subresource));
        }
        if self.operation == Operation::Update {
            text.push_str(&format!(" using {}", self.api_version));
        }
        text
    }
}

pub(super) fn refusal(mut conflicts: Vec<Conflict>) -> ApiError {
    conflicts.sort_by(|a, b| {
        (&a.manager, a.operation, &a.api_version, &a.subresource).cmp(&(
            &b.manager,
            b.operation,
            &b.api_version,
            &b.subresource,
        ))
    });
    let listed: Vec<(String, Vec<String>)> =
        conflicts.iter().map(|conflict| (conflict.shown(), conflict.set.paths())).collect();
    let count: usize = listed.iter().map(|(_, paths)| paths.len()).sum();
    let message = match listed.as_slice() {
        [(manager, paths)] if count == 1 => {
            format!("Apply failed with 1 conflict: conflict with {manager}: {}", paths.concat())
        }
        _ => {
            let lines = listed.iter().flat_map(|(manager, paths)| {
                let heading = std::iter::once(format!("conflicts with {manager}:"));
                heading.chain(paths.iter().map(|path| format!("- {path}")))
            });
            format!("Apply failed with {count} conflicts: {}", lines.collect::<Vec<_>>().join("\n"))
        }
    };
    let causes: Vec<Value> = listed
        .iter()
        .flat_map(|(manager, paths)| {
            paths.iter().map(move |path| {
                json!({"reason": "FieldManagerConflict", "message": format!("conflict with {manager}"), "field": path})
            })
        })
        .collect();
    let details = Map::from_iter([("causes".to_owned(), Value::Array(causes))]);
    ApiError { details: Some(Box::new(details)), ..ApiError::plain(409, "Conflict", message) }
}
