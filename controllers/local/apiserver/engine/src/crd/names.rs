//! The names of a definition.

use serde_json::{Value, json};

use super::{text, texts};
use crate::field::FieldError;

const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

fn is_label(text: &str, letter_first: bool) -> bool {
    let bytes = text.as_bytes();
    let plain = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    bytes.first().is_some_and(|b| if letter_first { b.is_ascii_lowercase() } else { plain(b) })
        && bytes.last().is_some_and(plain)
        && bytes.iter().all(|b| plain(b) || *b == b'-')
}

/// What is wrong with a DNS-1035 label.
pub(super) fn label_faults(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if text.len() > 63 {
        faults.push("must be no more than 63 characters".to_owned());
    }
    if !is_label(text, true) {
        faults.push(LABEL_1035.to_owned());
    }
    faults
}

fn subdomain_faults(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if text.len() > 253 {
        faults.push("must be no more than 253 characters".to_owned());
    }
    if !text.split('.').all(|part| is_label(part, false)) {
        faults.push(SUBDOMAIN.to_owned());
    }
    faults
}

/// Checks `spec.group`.
pub(super) fn group(group: &str, errors: &mut Vec<FieldError>) {
    let path = "spec.group";
    if group.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let faults = subdomain_faults(group);
    if !faults.is_empty() {
        errors.push(FieldError::invalid(path, &json!(group), &faults.join(",")));
    } else if !group.contains('.') {
        errors.push(FieldError::invalid(path, &json!(group), "should be a domain with at least one dot"));
    }
}

/// Checks `spec.names` or `status.acceptedNames`; `complete` requires every single name.
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
        let faults = label_faults(&if mixed { name.to_lowercase() } else { name.clone() });
        if !faults.is_empty() {
            let lead = if mixed { "may have mixed case, but should otherwise match: " } else { "" };
            errors.push(FieldError::invalid(field, &json!(name), &format!("{lead}{}", faults.join(","))));
        }
    }
    for key in ["shortNames", "categories"] {
        for (index, name) in texts(names, key).iter().enumerate() {
            let faults = label_faults(name);
            if !faults.is_empty() {
                let field = format!("{path}.{key}[{index}]");
                errors.push(FieldError::invalid(field, &json!(name), &faults.join(",")));
            }
        }
    }
    let (kind, list_kind) = (text(names, "kind"), text(names, "listKind"));
    if !kind.is_empty() && kind == list_kind {
        let field = format!("{path}.listKind");
        errors.push(FieldError::invalid(field, &json!(list_kind), "kind and listKind may not be the same"));
    }
}
