//! The names of a definition.

use serde_json::Value;

use super::{text, texts};
use crate::builtin::{label_1035, subdomain};
use crate::field::FieldError;

pub(super) fn group(group: &str, errors: &mut Vec<FieldError>) {
    let path = "spec.group";
    if group.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let faults = subdomain(group);
    if !faults.is_empty() {
        errors.push(FieldError::invalid(path, &group, &faults.join(",")));
    } else if !group.contains('.') {
        errors.push(FieldError::invalid(path, &group, "should be a domain with at least one dot"));
    }
}

pub(super) fn names(names: &Value, path: &str, complete: bool, errors: &mut Vec<FieldError>) {
    for key in ["plural", "singular", "kind", "listKind"] {
        let name = text(names, key);
        let field = format!("{path}.{key}");
        if name.is_empty() {
            if complete {
                errors.push(FieldError::required(field, ""));
            }
            continue;
        }
        let mixed = matches!(key, "kind" | "listKind");
        let faults = label_1035(&if mixed { name.to_lowercase() } else { name.clone() });
        if !faults.is_empty() {
            let lead = if mixed { "may have mixed case, but should otherwise match: " } else { "" };
            errors.push(FieldError::invalid(field, &name, &format!("{lead}{}", faults.join(","))));
        }
    }
    for key in ["shortNames", "categories"] {
        for (index, name) in texts(names, key).iter().enumerate() {
            let faults = label_1035(name);
            if !faults.is_empty() {
                let field = format!("{path}.{key}[{index}]");
                errors.push(FieldError::invalid(field, &name, &faults.join(",")));
            }
        }
    }
    let (kind, list_kind) = (text(names, "kind"), text(names, "listKind"));
    if !kind.is_empty() && kind == list_kind {
        let field = format!("{path}.listKind");
        errors.push(FieldError::invalid(field, &list_kind, "kind and listKind may not be the same"));
    }
}
