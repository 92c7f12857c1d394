//! `CertificateSigningRequest`s: which users may write which half, and validation.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{IMMUTABLE, items, name, number, required};
use crate::field::FieldError;
use crate::kinds::Kind;
use crate::object::{at, child_mut, copy_key, text_at};

/// Conditions that only the subresource `approval` adds, and nothing removes.
const DECIDED: [&str; 2] = ["Approved", "Denied"];
/// Usages that Kubernetes defines.
const USAGES: &str = "any|cert sign|client auth|code signing|content commitment|crl sign|data encipherment|\
    decipher only|digital signature|email protection|encipher only|ipsec end system|ipsec tunnel|ipsec user|\
    key agreement|key encipherment|microsoft sgc|netscape sgc|ocsp signing|s/mime|server auth|signing|\
    timestamping";

pub(super) fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let usages = items(object, "spec.usages");
    if usages.is_empty() {
        errors.push(FieldError::required("spec.usages", "usages must be provided"));
    }
    for (index, usage) in usages.iter().enumerate() {
        let path = format!("spec.usages[{index}]");
        let known: Vec<&str> = USAGES.split('|').collect();
        if !known.contains(&usage.as_str().unwrap_or_default()) {
            errors.push(FieldError::not_supported(path, usage, &known));
        } else if usages.iter().take(index).any(|earlier| earlier == usage) {
            errors.push(FieldError::duplicate(path, usage));
        }
    }
    if !holds(text_at(object, "spec.request"), "CERTIFICATE REQUEST") {
        let why = "PEM block type must be CERTIFICATE REQUEST";
        errors.push(FieldError::invalid("spec.request", &text_at(object, "spec.request"), why));
    }
    let signer = text_at(object, "spec.signerName");
    if !signer.is_empty() && !is_signer_name(signer) {
        let why = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        errors.push(FieldError::invalid("spec.signerName", &signer, why));
    }
    if let Some(seconds) = number(object, "spec.expirationSeconds").filter(|seconds| *seconds < 600) {
        let why = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.push(FieldError::invalid("spec.expirationSeconds", &seconds, why));
    }
}

/// Whether a base64 text stands for a PEM text with a block of that type, and no other type.
fn holds(encoded: &str, kind: &str) -> bool {
    let text = STANDARD.decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let text = text.unwrap_or_default();
    let begin = format!("-----BEGIN {kind}-----");
    let blocks = || text.lines().filter(|line| line.starts_with("-----BEGIN "));
    blocks().count() > 0 && blocks().all(|line| line == begin)
}

fn is_signer_name(signer: &str) -> bool {
    let Some((domain, path)) = signer.split_once('/') else { return false };
    domain.contains('.')
        && name::subdomain(domain).is_empty()
        && !path.is_empty()
        && path.split('/').all(|part| name::subdomain(part).is_empty())
}

/// What a change through `subresource` does not touch stays as it was: the spec always, and of the status all but the
/// conditions for an approver, the decision for a signer.
pub(crate) fn keep(subresource: &str, new: &mut Value, old: &Value) {
    copy_key(new, old, "spec");
    match subresource {
        "approval" => {
            let conditions = at(new, "status.conditions").cloned();
            copy_key(new, old, "status");
            let status = child_mut(new, "status");
            match conditions {
                Some(conditions) => drop(status.insert("conditions".to_owned(), conditions)),
                None => drop(status.remove("conditions")),
            }
        }
        "status" => {
            let Some(list) = child_mut(new, "status").get_mut("conditions").and_then(Value::as_array_mut)
            else {
                return;
            };
            for condition in list.iter_mut().filter(|condition| DECIDED.contains(&text_at(condition, "type")))
            {
                let kind = text_at(condition, "type").to_owned();
                if let Some(known) = condition_of(old, &kind) {
                    *condition = known.clone();
                }
            }
        }
        _ => {}
    }
}

/// Times of conditions that came without.
pub(crate) fn stamp(object: &mut Value, old: &Value, now: &str) {
    let Some(list) = child_mut(object, "status").get_mut("conditions").and_then(Value::as_array_mut) else {
        return;
    };
    for condition in list {
        let known = condition_of(old, text_at(condition, "type"))
            .filter(|known| text_at(known, "status") == text_at(condition, "status"));
        let since = known.map_or(now, |known| text_at(known, "lastTransitionTime")).to_owned();
        for (key, time) in [("lastTransitionTime", since.as_str()), ("lastUpdateTime", now)] {
            if text_at(condition, key).is_empty()
                && let Some(map) = condition.as_object_mut()
            {
                map.insert(key.to_owned(), json!(time));
            }
        }
    }
}

fn condition_of<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    items(object, "status.conditions").iter().find(|condition| text_at(condition, "type") == kind)
}

pub(super) fn validate_update(subresource: &str, object: &Value, live: &Value, errors: &mut Vec<FieldError>) {
    let path = "status.conditions";
    for kind in DECIDED {
        let (before, after) = (condition_of(live, kind), condition_of(object, kind));
        if before.is_some() && after.is_none() {
            let why = format!("updates may not remove a condition of type {kind:?}");
            errors.push(FieldError::forbidden(path, &why));
        }
        if before.is_none() && after.is_some() && subresource != "approval" {
            let why = format!("updates may not add a condition of type {kind:?}");
            errors.push(FieldError::forbidden(path, &why));
        }
    }
    if DECIDED.iter().all(|kind| condition_of(object, kind).is_some()) {
        let why = "Approved and Denied conditions are mutually exclusive";
        errors.push(FieldError::invalid(path, "Denied", why));
    }
    for (index, condition) in items(object, path).iter().enumerate() {
        let (kind, status) = (text_at(condition, "type"), text_at(condition, "status"));
        let at = format!("{path}[{index}]");
        required(condition, &format!("{at}."), "type", errors);
        let supported: &[&str] = match kind {
            "Approved" | "Denied" | "Failed" => &["True"],
            _ => &["True", "False", "Unknown"],
        };
        if status.is_empty() {
            errors.push(FieldError::required(format!("{at}.status"), ""));
        } else if !supported.contains(&status) {
            errors.push(FieldError::not_supported(format!("{at}.status"), &status, supported));
        }
    }
    let (before, after) = (text_at(live, "status.certificate"), text_at(object, "status.certificate"));
    if !before.is_empty() && before != after {
        errors.push(FieldError::invalid("status.certificate", &after, IMMUTABLE));
    } else if !after.is_empty() && !holds(after, "CERTIFICATE") {
        let why = "only CERTIFICATE PEM blocks are allowed";
        errors.push(FieldError::invalid("status.certificate", &after, why));
    }
}

pub(crate) const GROUP: &str = "certificates.k8s.io";

pub(crate) fn is_request(kind: &Kind) -> bool {
    kind.is_builtin() && kind.group == GROUP
}
