//! Conditions and accepted names of a definition.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{at, list, text, texts};
use crate::object;

#[derive(Clone, Copy, Debug)]
pub struct Condition<'a> {
    pub kind: &'a str,
    pub status: &'a str,
    pub reason: &'a str,
    pub message: &'a str,
}

/// Sets a condition; its `lastTransitionTime` only changes with its status. `now` is an RFC 3339 time.
pub fn set_condition(status: &mut Map<String, Value>, condition: Condition<'_>, now: &str) {
    let mut value = json!({
        "type": condition.kind, "status": condition.status, "lastTransitionTime": now,
        "reason": condition.reason, "message": condition.message,
    });
    let conditions = status.entry("conditions").or_insert(Value::Null);
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(conditions) = conditions.as_array_mut() else { return };
    match conditions.iter_mut().find(|old| text(old, "type") == condition.kind) {
        Some(old) => {
            if text(old, "status") == condition.status
                && let (Some(value), Some(time)) = (value.as_object_mut(), old.get("lastTransitionTime"))
            {
                value.insert("lastTransitionTime".to_owned(), time.clone());
            }
            *old = value;
        }
        None => conditions.push(value),
    }
}

pub fn is_true(definition: &Value, kind: &str) -> bool {
    let conditions = list(at(definition, &["status"]), "conditions");
    conditions.iter().any(|condition| text(condition, "type") == kind && text(condition, "status") == "True")
}

const TERMINATING: Condition<'static> = Condition {
    kind: "Terminating",
    status: "True",
    reason: "InstanceDeletionPending",
    message: "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
};

const NO_CONFLICTS: Condition<'static> =
    Condition { kind: "NamesAccepted", status: "True", reason: "NoConflicts", message: "no conflicts found" };

const ESTABLISHED: Condition<'static> = Condition {
    kind: "Established",
    status: "True",
    reason: "InitialNamesAccepted",
    message: "the initial names have been accepted",
};

const NOT_ACCEPTED: Condition<'static> = Condition {
    kind: "Established",
    status: "False",
    reason: "NotAccepted",
    message: "not all names are accepted",
};

/// The status a definition should have, given the other definitions of its group (those of other groups are ignored):
/// names that no other definition holds are accepted; once all are, the definition is established permanently.
pub fn settle<'a>(definition: &Value, others: impl IntoIterator<Item = &'a Value>, now: &str) -> Value {
    let spec = at(definition, &["spec"]);
    let (mut resources, mut kinds) = (BTreeSet::new(), BTreeSet::new());
    for other in others {
        let same_group = text(at(other, &["spec"]), "group") == text(spec, "group");
        let itself = at(other, &["metadata", "name"]) == at(definition, &["metadata", "name"]);
        if same_group && !itself {
            claim(other, &mut resources, &mut kinds);
        }
    }
    let mut status = at(definition, &["status"]).as_object().cloned().unwrap_or_default();
    let accepted = at(definition, &["status", "acceptedNames"]);
    let requested = at(spec, &["names"]);
    let mut acceptance = Acceptance { requested, accepted, names: Map::new(), conflict: None };
    acceptance.single("plural", &resources, "PluralConflict");
    acceptance.single("singular", &resources, "SingularConflict");
    acceptance.short_names(&resources);
    acceptance.single("kind", &kinds, "KindConflict");
    acceptance.single("listKind", &kinds, "ListKindConflict");
    let Acceptance { mut names, conflict, .. } = acceptance;
    let categories = texts(requested, "categories");
    if !categories.is_empty() {
        names.insert("categories".to_owned(), json!(categories));
    }
    status.insert("acceptedNames".to_owned(), Value::Object(names));
    match &conflict {
        None => set_condition(&mut status, NO_CONFLICTS, now),
        Some((reason, message)) => {
            let refused = Condition { kind: "NamesAccepted", status: "False", reason, message };
            set_condition(&mut status, refused, now);
        }
    }
    if !is_true(definition, "Established") {
        set_condition(&mut status, if conflict.is_none() { ESTABLISHED } else { NOT_ACCEPTED }, now);
    }
    status.entry("storedVersions").or_insert_with(|| json!([]));
    Value::Object(status)
}

fn claim(definition: &Value, resources: &mut BTreeSet<String>, kinds: &mut BTreeSet<String>) {
    let names = at(definition, &["status", "acceptedNames"]);
    resources.extend([text(names, "plural"), text(names, "singular")]);
    resources.extend(texts(names, "shortNames"));
    kinds.extend([text(names, "kind"), text(names, "listKind")]);
    resources.remove("");
    kinds.remove("");
}

/// Collects accepted names; the last conflict is the one reported.
struct Acceptance<'a> {
    requested: &'a Value,
    accepted: &'a Value,
    names: Map<String, Value>,
    conflict: Option<(&'static str, String)>,
}

impl Acceptance<'_> {
    fn single(&mut self, key: &str, taken: &BTreeSet<String>, reason: &'static str) {
        let (wanted, held) = (text(self.requested, key), text(self.accepted, key));
        let refused = wanted != held && taken.contains(&wanted);
        if refused {
            self.conflict = Some((reason, in_use(&wanted)));
        }
        let settled = if refused { held } else { wanted };
        if !settled.is_empty() || matches!(key, "plural" | "kind") {
            self.names.insert(key.to_owned(), Value::String(settled));
        }
    }

    fn short_names(&mut self, taken: &BTreeSet<String>) {
        let (wanted, held) = (texts(self.requested, "shortNames"), texts(self.accepted, "shortNames"));
        let clashes: Vec<String> = wanted
            .iter()
            .filter(|name| !held.contains(name) && taken.contains(*name))
            .map(|name| in_use(name))
            .collect();
        let message = match clashes.as_slice() {
            [] => None,
            [only] => Some(only.clone()),
            many => Some(format!("[{}]", many.join(", "))),
        };
        let settled = if message.is_none() { wanted } else { held };
        if let Some(message) = message {
            self.conflict = Some(("ShortNamesConflict", message));
        }
        if !settled.is_empty() {
            self.names.insert("shortNames".to_owned(), json!(settled));
        }
    }
}

fn in_use(name: &str) -> String {
    format!("\"{name}\" is already in use")
}

pub(crate) const DEFINITION_CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

pub(crate) fn start_definition_end(definition: &mut Value, now: &str) {
    let mut finalizers: Vec<String> = object::finalizers(definition).into_iter().map(str::to_owned).collect();
    if !finalizers.iter().any(|f| f == DEFINITION_CLEANUP) {
        finalizers.push(DEFINITION_CLEANUP.to_owned());
    }
    object::set_meta(definition, "finalizers", json!(finalizers));
    set_condition(object::child_mut(definition, "status"), TERMINATING, now);
}
