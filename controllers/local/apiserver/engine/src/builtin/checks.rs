//! The table of checks: what fields of built-in types must be like, wherever the type is used.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::OnceLock;

use serde_json::{Map, Value};

use super::{NOT_NEGATIVE, meta, name, selector};
use crate::field::FieldError;
use crate::schema::{MAX_DEPTH, Schema};

const TABLE: &str = include_str!("checks.txt");
/// Parts that are checked also where they are left out, because of what they need.
const WHOLE: [&str; 3] = ["roleRef", "scaleTargetRef", "spec"];

/// A field, the name of its rule, and what the rule needs.
type Check = (&'static str, &'static str, Vec<&'static str>);

fn table() -> &'static BTreeMap<&'static str, Vec<Check>> {
    static PARSED: OnceLock<BTreeMap<&'static str, Vec<Check>>> = OnceLock::new();
    PARSED.get_or_init(|| {
        let mut table: BTreeMap<&str, Vec<Check>> = BTreeMap::new();
        for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.split(' ');
            if let (Some(of), Some(field), Some(rule)) = (words.next(), words.next(), words.next()) {
                table.entry(of).or_default().push((field, rule, words.collect()));
            }
        }
        table
    })
}

/// Checks an object: its status, or all else but its metadata.
pub(super) fn check(object: &Value, schema: &Schema, is_status: bool, errors: &mut Vec<FieldError>) {
    let Some(map) = object.as_object() else { return };
    if !is_status {
        rules(map, schema, "", errors);
    }
    for (key, value) in map {
        if (key == "status") == is_status
            && key != "metadata"
            && let Some(child) = schema.child(key)
        {
            walk(value, child, key, 0, errors);
        }
    }
}

fn rules(map: &Map<String, Value>, schema: &Schema, path: &str, errors: &mut Vec<FieldError>) {
    let of = schema
        .type_name
        .as_deref()
        .and_then(|of| of.strip_prefix("io.k8s.api.").or(of.strip_prefix("io.k8s.")));
    for (field, rule, words) in of.and_then(|of| table().get(of)).into_iter().flatten() {
        apply(map, (*field, *rule, words), path, errors);
    }
    for key in WHOLE.into_iter().filter(|key| !map.contains_key(*key)) {
        if let Some(child) = schema.child(key) {
            rules(&Map::new(), child, &place(path, key), errors);
        }
    }
}

fn place(path: &str, field: &str) -> String {
    if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") }
}

fn walk(value: &Value, schema: &Schema, path: &str, depth: usize, errors: &mut Vec<FieldError>) {
    if depth > MAX_DEPTH {
        return;
    }
    match value {
        Value::Object(map) => {
            rules(map, schema, path, errors);
            for (key, item) in map {
                if let Some(child) = schema.child(key).filter(|_| item.is_object() || item.is_array()) {
                    walk(item, child, &format!("{path}.{key}"), depth + 1, errors);
                }
            }
        }
        Value::Array(list) => {
            for (index, item) in list.iter().enumerate() {
                if let Some(child) = &schema.items {
                    walk(item, child, &format!("{path}[{index}]"), depth + 1, errors);
                }
            }
        }
        _ => {}
    }
}

/// What the parts of a toleration at `path` mean together.
fn toleration(map: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    let text = |key: &str| map.get(key).and_then(Value::as_str).unwrap_or_default();
    let (key, operator, value) = (text("key"), text("operator"), text("value"));
    let mut refuse = |field: &str, value: &str, detail: &str| {
        errors.push(FieldError::invalid(format!("{path}.{field}"), &value, detail));
    };
    if key.is_empty() && operator != "Exists" {
        let detail =
            "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        refuse("operator", operator, detail);
    }
    if map.contains_key("tolerationSeconds") && text("effect") != "NoExecute" {
        refuse("effect", text("effect"), "effect must be 'NoExecute' when `tolerationSeconds` is set");
    }
    match operator {
        "Exists" if !value.is_empty() => {
            refuse("operator", value, "value must be empty when `operator` is 'Exists'");
        }
        "" | "Equal" => name::label_value(value).iter().for_each(|fault| refuse("operator", value, fault)),
        _ => {}
    }
}

fn apply(
    map: &Map<String, Value>,
    (field, rule, words): (&str, &str, &[&str]),
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let value = map.get(field).unwrap_or(&Value::Null);
    let (text, number) = (value.as_str().unwrap_or_default(), value.as_i64());
    let place = place(path, field);
    let bound = |at: usize| words.get(at).and_then(|word| word.parse().ok()).unwrap_or(i64::MAX);
    match rule {
        "needed"
            if text.is_empty()
                && number.unwrap_or(0) == 0
                && value.as_array().is_none_or(Vec::is_empty)
                && !value.is_object() =>
        {
            errors.push(FieldError::required(place, ""));
        }
        "one" if !text.is_empty() && !words.contains(&text) => {
            errors.push(FieldError::not_supported(place, value, words));
        }
        "from" if number.is_some_and(|number| number < bound(0)) => {
            let detail = if bound(0) == 1 { "must be greater than 0" } else { NOT_NEGATIVE };
            errors.push(FieldError::invalid(place, value, detail));
        }
        // A port that is 0 is none.
        "range"
            if number.is_some_and(|number| !(bound(0)..=bound(1)).contains(&number))
                && (number != Some(0) || !field.ends_with("Port")) =>
        {
            let detail = format!("must be between {} and {}, inclusive", bound(0), bound(1));
            errors.push(FieldError::invalid(place, value, &detail));
        }
        "port" => match value {
            Value::String(text) => name::check(text, &place, name::port, errors),
            _ if number.is_none_or(|number| !(1..=65535).contains(&number)) => {
                errors.push(FieldError::invalid(place, value, "must be between 1 and 65535, inclusive"));
            }
            _ => {}
        },
        "each" => {
            let items = value.as_array().into_iter().flatten();
            for item in items.filter(|item| !item.as_str().is_some_and(|item| words.contains(&item))) {
                errors.push(FieldError::not_supported(place.clone(), item, words));
            }
        }
        "keys" => {
            for key in value.as_object().into_iter().flat_map(Map::keys) {
                name::check(key, &format!("{place}[{key}]"), name::config_key, errors);
            }
        }
        "requirement" => selector::validate_item(&Value::Object(map.clone()), path, errors),
        "labels" => meta::validate_labels(Some(value), &place, errors),
        "relative" if text.starts_with('/') || text.starts_with("..") || text.contains("/..") => {
            errors.push(FieldError::invalid(place, value, "must be a relative path without '..'"));
        }
        "source" => source(map, words, path, errors),
        "toleration" => toleration(map, path, errors),
        "name" if !text.is_empty() => {
            let rule = match words {
                ["port"] => name::port,
                ["label"] => name::label,
                ["subdomain"] => name::subdomain,
                ["segment"] => name::path_segment,
                ["ip"] => address,
                ["variable"] => variable,
                _ => name::qualified,
            };
            name::check(text, &place, rule, errors);
        }
        _ => {}
    }
}

fn source(map: &Map<String, Value>, ways: &[&str], path: &str, errors: &mut Vec<FieldError>) {
    let given: Vec<&&str> = ways.iter().filter(|way| map.contains_key(**way)).collect();
    let is_variable = path.ends_with(".valueFrom");
    if given.is_empty() {
        let detail = "must specify one of: ".to_owned() + &ways.join(", ");
        errors.push(match is_variable {
            true => FieldError::invalid(path, "", &detail),
            false => FieldError::required(path, &detail),
        });
    }
    for way in given.iter().skip(1) {
        let detail = "may not specify more than one at a time";
        errors.push(match is_variable {
            true => FieldError::invalid(path, "", detail),
            false => FieldError::forbidden(format!("{path}.{way}"), detail),
        });
    }
}

fn variable(text: &str) -> Vec<String> {
    let fault =
        "a valid environment variable name must consist only of printable ASCII characters other than '='";
    let fine = text.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=');
    if fine { Vec::new() } else { vec![fault.to_owned()] }
}

fn address(text: &str) -> Vec<String> {
    let fault = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
    if text.parse::<IpAddr>().is_ok() { Vec::new() } else { vec![fault.to_owned()] }
}

/// IP addresses of a pod: at most one of each family.
pub(super) fn addresses(all: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    let texts: Vec<&str> = all.iter().map(|item| crate::object::text_at(item, "ip")).collect();
    for (index, text) in texts.iter().enumerate() {
        name::check(text, &format!("{path}[{index}]"), address, errors);
    }
    let of = |v4: bool| {
        texts.iter().filter(|text| text.parse().is_ok_and(|ip: IpAddr| ip.is_ipv4() == v4)).count()
    };
    if of(true) > 1 || of(false) > 1 {
        let detail = "may specify no more than one IP for each IP family";
        errors.push(FieldError::invalid(path, &texts, detail));
    }
}
