//! Rules for names, labels and keys, with the texts a real server refuses them with. No regular expressions: these run
//! on every write.

use crate::field::FieldError;

pub(super) type Rule = fn(&str) -> Vec<String>;

pub(super) fn check(text: &str, field: &str, rule: Rule, errors: &mut Vec<FieldError>) {
    for fault in rule(text) {
        errors.push(FieldError::invalid(field, &text, &fault));
    }
}

/// RFC 1123 label: at most 63 of `[a-z0-9-]`, alphanumeric at both ends.
pub(super) fn label(text: &str) -> Vec<String> {
    let mut faults = too_long(text, 63, "characters");
    if !is_label(text) && text.split('.').all(is_label) {
        faults.push("must not contain dots".to_owned());
    } else if !is_label(text) {
        faults.push(
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and \
             end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
                .to_owned(),
        );
    }
    faults
}

/// RFC 1123 subdomain: labels joined by dots, at most 253 characters.
pub(crate) fn subdomain(text: &str) -> Vec<String> {
    subdomain_of(text, "characters")
}

fn subdomain_of(text: &str, unit: &str) -> Vec<String> {
    let mut faults = too_long(text, 253, unit);
    if !text.split('.').all(is_label) {
        faults.push(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                .to_owned(),
        );
    }
    faults
}

/// RFC 1035 label: one that begins with a letter.
pub(crate) fn label_1035(text: &str) -> Vec<String> {
    let mut faults = too_long(text, 63, "characters");
    if !is_label(text) || !text.starts_with(|letter: char| letter.is_ascii_lowercase()) {
        faults.push(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
             validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
                .to_owned(),
        );
    }
    faults
}

/// A name that may hold anything which fits into a URL path.
pub(super) fn path_segment(text: &str) -> Vec<String> {
    if text == "." || text == ".." {
        return vec![format!("may not be '{text}'")];
    }
    let held = ["/", "%"].into_iter().filter(|part| text.contains(part));
    held.map(|part| format!("may not contain '{part}'")).collect()
}

const QUALIFIED: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

/// A key of labels and annotations: `[<subdomain>/]<name>`.
pub(super) fn qualified(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let name = match text.split_once('/') {
        None => text,
        Some((_, name)) if name.contains('/') => {
            faults.push(format!(
                "a valid label key {QUALIFIED} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')"
            ));
            return faults;
        }
        Some((prefix, name)) => {
            if prefix.is_empty() {
                faults.push("prefix part must be non-empty".to_owned());
            } else {
                faults.extend(
                    subdomain_of(prefix, "bytes").into_iter().map(|fault| format!("prefix part {fault}")),
                );
            }
            name
        }
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    } else {
        faults.extend(too_long(name, 63, "bytes").into_iter().map(|fault| format!("name part {fault}")));
    }
    if !is_name(name) {
        faults.push(format!("name part {QUALIFIED}"));
    }
    faults
}

/// The value of a label: empty, or at most 63 bytes as in a name.
pub(super) fn label_value(text: &str) -> Vec<String> {
    let mut faults = too_long(text, 63, "bytes");
    if !text.is_empty() && !is_name(text) {
        faults.push(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
             start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
             for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
                .to_owned(),
        );
    }
    faults
}

/// A key of a ConfigMap or Secret.
pub(super) fn config_key(text: &str) -> Vec<String> {
    let mut faults = too_long(text, 253, "characters");
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)) {
        faults.push(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
             'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
                .to_owned(),
        );
    }
    match text {
        "." => faults.push("must not be '.'".to_owned()),
        ".." => faults.push("must not be '..'".to_owned()),
        _ if text.starts_with("..") => faults.push("must not start with '..'".to_owned()),
        _ => {}
    }
    faults
}

/// The name of a port: at most 15 of `[a-z0-9-]`, with a letter.
pub(super) fn port(text: &str) -> Vec<String> {
    let mut faults = too_long(text, 15, "characters");
    let mut check = |wrong: bool, fault: &str| {
        if wrong {
            faults.push(fault.to_owned());
        }
    };
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    check(
        text.is_empty() || !text.bytes().all(plain),
        "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
    );
    check(!text.bytes().any(|b| b.is_ascii_lowercase()), "must contain at least one letter (a-z)");
    check(text.contains("--"), "must not contain consecutive hyphens");
    check(text.starts_with('-') || text.ends_with('-'), "must not begin or end with a hyphen");
    faults
}

fn too_long(text: &str, max: usize, unit: &str) -> Vec<String> {
    if text.len() > max { vec![format!("must be no more than {max} {unit}")] } else { Vec::new() }
}

fn is_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let bytes = text.as_bytes();
    bytes.iter().copied().all(inner) && ends_differ_from(bytes, b"-")
}

fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b)) && ends_differ_from(bytes, b"-_.")
}

/// Whether there is a first and a last byte, neither one of `excluded`.
fn ends_differ_from(bytes: &[u8], excluded: &[u8]) -> bool {
    let fine = |end: Option<&u8>| end.is_some_and(|byte| !excluded.contains(byte));
    fine(bytes.first()) && fine(bytes.last())
}
