//! Branches of `allOf`, `anyOf`, `oneOf` and `not`: they may constrain values, but not declare structure.

use serde_json::{Map, Value, json};

use crate::field::FieldError;

/// Checks all branches of a node at `path`.
pub(super) fn check(errors: &mut Vec<FieldError>, path: &str, fields: &Map<String, Value>) {
    let int_or_string = fields.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true));
    for (name, branch) in branches(fields) {
        let Some(inner) = branch.as_object() else { continue };
        let allowed = int_or_string && is_int_or_string_branch(fields, &name);
        let mut walk = Walk { errors: &mut *errors, int_or_string };
        walk.branch(&format!("{path}.{name}"), inner, fields, path, allowed);
    }
}

/// `anyOf: [{type: integer}, {type: string}]` is the customary equivalent of `x-kubernetes-int-or-string`.
fn is_int_or_string_branch(fields: &Map<String, Value>, name: &str) -> bool {
    let pair = json!([{ "type": "integer" }, { "type": "string" }]);
    name.starts_with("anyOf[") && fields.get("anyOf") == Some(&pair)
}

struct Walk<'a> {
    errors: &'a mut Vec<FieldError>,
    int_or_string: bool,
}

impl Walk<'_> {
    fn branch(
        &mut self,
        path: &str,
        branch: &Map<String, Value>,
        main: &Map<String, Value>,
        main_path: &str,
        typed: bool,
    ) {
        self.forbidden(path, branch, typed);
        for (name, inner) in branches(branch) {
            let Some(inner) = inner.as_object() else { continue };
            let allowed = self.int_or_string && is_int_or_string_branch(branch, &name);
            self.branch(&format!("{path}.{name}"), inner, main, main_path, allowed);
        }
        let properties = branch.get("properties").and_then(Value::as_object);
        for (key, inner) in properties.into_iter().flatten() {
            let place = format!("{path}.properties[{key}]");
            self.below(&place, inner, properties_of(main, key), &format!("{main_path}.properties[{key}]"));
        }
        if let Some(items) = branch.get("items") {
            self.below(&format!("{path}.items"), items, main.get("items"), &format!("{main_path}.items"));
        }
    }

    /// A property or item in a branch must also be declared in the main schema.
    fn below(&mut self, path: &str, inner: &Value, main: Option<&Value>, main_path: &str) {
        let Some(inner) = inner.as_object() else { return };
        match main.and_then(Value::as_object) {
            Some(main) => self.branch(path, inner, main, main_path, false),
            None => {
                let detail = format!("because it is defined in {path}");
                self.errors.push(FieldError::required(main_path, &detail));
            }
        }
    }

    fn forbidden(&mut self, path: &str, branch: &Map<String, Value>, typed: bool) {
        let mut refuse = |key: &str, detail: &str| {
            self.errors.push(FieldError::forbidden(format!("{path}.{key}"), detail));
        };
        for key in ["type", "title", "description"] {
            let filled = branch.get(key).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
            if filled && !(typed && key == "type") {
                refuse(key, "must be empty to be structural");
            }
        }
        for key in ["default", "additionalProperties"] {
            if branch.get(key).is_some_and(|value| !value.is_null()) {
                refuse(key, "must be undefined to be structural");
            }
        }
        for key in [
            "nullable",
            "x-kubernetes-preserve-unknown-fields",
            "x-kubernetes-embedded-resource",
            "x-kubernetes-int-or-string",
        ] {
            if branch.get(key) == Some(&Value::Bool(true)) {
                refuse(key, "must be false to be structural");
            }
        }
        for key in ["x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type"] {
            if branch.contains_key(key) {
                refuse(key, "must be undefined to be structural");
            }
        }
        if branch.contains_key("x-kubernetes-validations") {
            refuse("x-kubernetes-validations", "must be empty to be structural");
        }
    }
}

/// Whether a schema lists a required property, for [`nested`].
pub(super) fn properties_of<'v>(fields: &'v Map<String, Value>, key: &str) -> Option<&'v Value> {
    fields.get("properties").and_then(|properties| properties.get(key))
}

/// The branches of a combination, with their keyword.
pub(super) fn branches(fields: &Map<String, Value>) -> Vec<(String, &Value)> {
    let mut found = Vec::new();
    let document = |key: &str| fields.get(key);
    for key in ["allOf", "anyOf", "oneOf"] {
        let list = document(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        found.extend(list.iter().enumerate().map(|(index, branch)| (format!("{key}[{index}]"), branch)));
    }
    found.extend(document("not").map(|branch| ("not".to_owned(), branch)));
    found
}
