//! Webhook configurations.

use serde_json::{Value, json};

use super::{items, name, number, one_of};
use crate::field::FieldError;
use crate::object::text_at;
use crate::schema::Schema;
use crate::schema::rules::condition_error;

const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const REVIEWS: [&str; 2] = ["v1", "v1beta1"];

/// Most conditions one webhook may have.
const MAX_CONDITIONS: usize = 64;

pub(super) fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let mut names = Vec::new();
    for (index, hook) in items(object, "webhooks").iter().enumerate() {
        let path = format!("webhooks[{index}]");
        let name = text_at(hook, "name");
        if names.contains(&name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), &name));
        }
        names.push(name);
        validate_name(name, &path, errors);
        validate_hook(hook, &path, errors);
        validate_conditions(hook, &path, errors);
        validate_versions(hook, &path, errors);
    }
}

fn validate_name(text: &str, path: &str, errors: &mut Vec<FieldError>) {
    let field = format!("{path}.name");
    if text.is_empty() {
        errors.push(FieldError::required(field, ""));
        return;
    }
    let faults = name::subdomain(text);
    if faults.is_empty() && text.split('.').count() < 3 {
        let detail = "should be a domain with at least three segments separated by dots";
        errors.push(FieldError::invalid(field.clone(), &text, detail));
    }
    for fault in faults {
        errors.push(FieldError::invalid(field.clone(), &text, &fault));
    }
}

fn validate_hook(hook: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let below = format!("{path}.");
    for (index, rule) in items(hook, "rules").iter().enumerate() {
        validate_rule(rule, &format!("{path}.rules[{index}]"), errors);
    }
    let effects = ["None", "NoneOnDryRun"];
    match hook.get("sideEffects") {
        None => errors.push(FieldError::required(
            format!("{path}.sideEffects"),
            &format!("must specify one of {}", effects.join(", ")),
        )),
        _ => one_of(hook, &below, "sideEffects", &effects, errors),
    }
    validate_client(
        hook.get("clientConfig").unwrap_or(&Value::Null),
        &format!("{path}.clientConfig"),
        errors,
    );
}

fn validate_versions(hook: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let versions = items(hook, "admissionReviewVersions");
    let field = format!("{path}.admissionReviewVersions");
    let known = |version: &Value| version.as_str().is_some_and(|version| REVIEWS.contains(&version));
    let mut seen = Vec::new();
    for (index, version) in versions.iter().enumerate() {
        let (text, field) = (version.as_str().unwrap_or_default(), format!("{field}[{index}]"));
        if seen.contains(&text) {
            errors.push(FieldError::invalid(field, version, "duplicate version"));
            continue;
        }
        seen.push(text);
        for fault in name::label_1035(text) {
            errors.push(FieldError::invalid(field.clone(), version, &fault));
        }
    }
    if versions.is_empty() {
        errors.push(FieldError::required(field, &format!("must specify one of {}", REVIEWS.join(", "))));
    } else if !versions.iter().any(known) {
        let detail = format!("must include at least one of {}", REVIEWS.join(", "));
        errors.push(FieldError::invalid(field, &versions, &detail));
    }
}

pub(crate) fn validate_client(client: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let (url, service) = (client.get("url"), client.get("service"));
    match (url.and_then(Value::as_str), service) {
        (None, None) | (Some(_), Some(_)) => {
            errors.push(FieldError::required(path, "exactly one of url or service is required"));
        }
        (Some(url), None) => validate_url(url, &format!("{path}.url"), errors),
        (None, Some(service)) => {
            // The real server names each in the place of the other.
            for (named, key) in [("name", "namespace"), ("namespace", "name")] {
                if text_at(service, key).is_empty() {
                    errors.push(FieldError::required(format!("{path}.service.{named}"), ""));
                }
            }
            validate_address(service, &format!("{path}.service"), errors);
        }
    }
}

fn validate_url(url: &str, field: &str, errors: &mut Vec<FieldError>) {
    const FORM: &str = "; desired format: https://host[/path]";
    let (rest, fragment) = url.split_once('#').unwrap_or((url, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let is_scheme = |text: &str| {
        let known = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(known)
    };
    let scheme = rest.split_once(':').filter(|(scheme, _)| !scheme.contains('/'));
    let escapes = rest.split('%').skip(1);
    let is_escape = |part: &str| part.get(..2).is_some_and(|two| two.bytes().all(|b| b.is_ascii_hexdigit()));
    let place = scheme.map_or(rest, |(_, rest)| rest);
    let authority = place.strip_prefix("//").map_or("", |rest| rest.split('/').next().unwrap_or_default());
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let port = host.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')).map_or("", |(_, port)| port);
    let cannot_be_read = scheme.is_some_and(|(scheme, _)| !is_scheme(scheme))
        || !escapes.into_iter().all(is_escape)
        || host.contains(' ')
        || !port.bytes().all(|byte| byte.is_ascii_digit());
    if cannot_be_read {
        errors.push(FieldError::required(field, &format!("url must be a valid URL{FORM}")));
        return;
    }
    let mut refuse = |value: &str, detail: String| errors.push(FieldError::invalid(field, &value, &detail));
    let scheme = scheme.map_or("", |(scheme, _)| scheme).to_lowercase();
    if scheme != "https" {
        refuse(&scheme, format!("'https' is the only allowed URL scheme{FORM}"));
    }
    if host.is_empty() {
        refuse("", format!("host must be specified{FORM}"));
    }
    for (given, what) in
        [(user, "user information is"), (fragment, "fragments are"), (query, "query parameters are")]
    {
        if !given.is_empty() {
            refuse(given, format!("{what} not permitted in the URL"));
        }
    }
}

fn validate_address(service: &Value, place: &str, errors: &mut Vec<FieldError>) {
    if let Some(port) = number(service, "port").filter(|port| !(1..=65535).contains(port)) {
        let detail = "port is not valid: must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid(format!("{place}.port"), &port, detail));
    }
    let (path, field) = (text_at(service, "path"), format!("{place}.path"));
    let mut refuse = |detail: &str| errors.push(FieldError::invalid(field.clone(), &path, detail));
    if matches!(path, "" | "/") {
        return;
    }
    if !path.starts_with('/') {
        refuse("must start with a '/'");
    }
    // The first letter is taken for the slash, whatever it is.
    let mut rest = path.chars();
    rest.next();
    let rest = rest.as_str();
    for (index, step) in rest.strip_suffix('/').unwrap_or(rest).split('/').enumerate() {
        if step.is_empty() {
            refuse(&format!("segment[{index}] may not be empty"));
            continue;
        }
        for fault in name::subdomain(step) {
            refuse(&format!("segment[{index}]: {fault}"));
        }
    }
}

fn validate_rule(rule: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (list, others) in
        [("operations", "operations"), ("apiGroups", "API groups"), ("apiVersions", "API versions")]
    {
        let (all, field) = (items(rule, list), format!("{path}.{list}"));
        if all.is_empty() {
            errors.push(FieldError::required(field.clone(), ""));
        }
        if all.len() > 1 && all.contains(&json!("*")) {
            let detail = format!("if '*' is present, must not specify other {others}");
            errors.push(FieldError::invalid(field.clone(), &all, &detail));
        }
        for (index, one) in all.iter().enumerate() {
            let field = format!("{field}[{index}]");
            let known = one.as_str().is_some_and(|one| OPERATIONS.contains(&one));
            if list == "operations" && !known {
                errors.push(FieldError::not_supported(field, one, &OPERATIONS));
            } else if list == "apiVersions" && one == "" {
                errors.push(FieldError::required(field, ""));
            }
        }
    }
    validate_resources(items(rule, "resources"), &format!("{path}.resources"), errors);
}

/// Resources, each with or without a subresource: a star stands for all.
fn validate_resources(all: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    if all.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    let (mut whole, mut parts) = (Vec::new(), Vec::new());
    // As the real server has it, the last resource without a subresource decides.
    let mut plain = false;
    for (index, resource) in all.iter().enumerate() {
        let (text, field) = (resource.as_str().unwrap_or_default(), format!("{path}[{index}]"));
        let Some((name, part)) = text.split_once('/') else {
            if text.is_empty() {
                errors.push(FieldError::required(field, ""));
            } else {
                plain = text != "*";
            }
            continue;
        };
        let mut refuse = |present: String| {
            let detail = format!("if '{present}' is present, must not specify {text}");
            errors.push(FieldError::invalid(field.clone(), resource, &detail));
        };
        if whole.contains(&name) {
            refuse(format!("{name}/*"));
        }
        if parts.contains(&part) {
            refuse(format!("*/{part}"));
        }
        if part == "*" {
            whole.push(name);
        }
        if name == "*" {
            parts.push(part);
        }
    }
    let mut refuse = |detail: &str| errors.push(FieldError::invalid(path, &all, detail));
    if all.len() > 1 && all.contains(&json!("*/*")) {
        refuse("if '*/*' is present, must not specify other resources");
    }
    if plain && all.contains(&json!("*")) {
        refuse("if '*' is present, must not specify other resources without subresources");
    }
}

fn validate_conditions(hook: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let conditions = items(hook, "matchConditions");
    if conditions.len() > MAX_CONDITIONS {
        let detail = format!("{}: must have at most {MAX_CONDITIONS} items", conditions.len());
        let reason = crate::field::FieldReason::TooMany;
        errors.push(FieldError::bare(reason, format!("{path}.matchConditions"), &detail));
    }
    for (index, condition) in conditions.iter().take(MAX_CONDITIONS).enumerate() {
        let path = format!("{path}.matchConditions[{index}]");
        let name = text_at(condition, "name");
        if name.is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        } else {
            name::check(name, &format!("{path}.name"), name::qualified, errors);
        }
        if conditions.iter().take(index).any(|other| text_at(other, "name") == name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), &name));
        }
        let expression = text_at(condition, "expression");
        if expression.trim().is_empty() {
            errors.push(FieldError::required(format!("{path}.expression"), ""));
        } else if let Some(why) = condition_error(expression, &variables()) {
            errors.push(FieldError::invalid(format!("{path}.expression"), &expression, &why));
        }
    }
}

fn variables() -> [(&'static str, Schema); 5] {
    let text = json!({ "type": "string" });
    let kind = |last: &str| json!({ "type": "object", "properties": { "group": text, "version": text, last: text } });
    let user = json!({ "type": "object", "properties": { "username": text, "uid": text,
        "groups": { "type": "array", "items": text },
        "extra": { "type": "object", "additionalProperties": { "type": "array", "items": text } } } });
    let request = json!({ "type": "object", "properties": {
        "kind": kind("kind"), "resource": kind("resource"), "subResource": text,
        "requestKind": kind("kind"), "requestResource": kind("resource"), "requestSubResource": text,
        "name": text, "namespace": text, "operation": text, "userInfo": user,
        "dryRun": { "type": "boolean" }, "options": { "x-kubernetes-preserve-unknown-fields": true } } });
    let any = Schema::any;
    [
        ("object", any()),
        ("oldObject", any()),
        ("namespaceObject", any()),
        ("request", (*crate::schema::parse::fragment(&request)).clone()),
        ("authorizer", any()),
    ]
}
