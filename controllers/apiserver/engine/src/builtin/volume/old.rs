//! Kinds of volumes that are older than drivers for storage.

use serde_json::{Value, json};

use super::source::check_descending;
use crate::builtin::{items, name, number, one_of, required};
use crate::field::FieldError;
use crate::object::{at, text_at};

const CACHING: [&str; 3] = ["None", "ReadOnly", "ReadWrite"];
const DISKS: [&str; 3] = ["Dedicated", "Managed", "Shared"];
const MANAGED: &str =
    "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
const BLOB: &str = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";
const REGISTRY: &str = "must be a host:port pair or multiple pairs separated by commas";

/// The source at `path`; others than the old ones are fine here.
pub(super) fn validate(kind: &str, source: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let below = format!("{path}.");
    for field in needed(kind) {
        // Lists are needed with an entry.
        if items(source, field).is_empty() {
            required(source, &below, field, errors);
        }
    }
    match kind {
        "gitRepo" => check_descending(text_at(source, "directory"), &format!("{path}.directory"), errors),
        "gcePersistentDisk" => {
            // The real server blames a field of another name.
            let path = path.replacen("gcePersistentDisk", "persistentDisk", 1);
            required(source, &format!("{path}."), "pdName", errors);
            check_range(source, "partition", "must be between 1 and 255, inclusive", &path, errors);
        }
        "awsElasticBlockStore" => {
            check_range(source, "partition", "must be between 1 and 255, inclusive", path, errors);
        }
        "iscsi" => validate_iscsi(source, path, errors),
        "flocker" => validate_flocker(source, path, errors),
        "quobyte" => validate_quobyte(source, path, errors),
        "fc" => validate_fibre(source, path, errors),
        "flexVolume" => validate_options(source, path, errors),
        "azureDisk" => validate_azure_disk(source, path, errors),
        "storageos" => validate_storage_os(source, path, errors),
        _ => {}
    }
    if matches!(kind, "cinder" | "storageos") && source.get("secretRef").is_some() {
        required(source, &below, "secretRef.name", errors);
    }
}

/// Fields that must not be empty, in the order in which they are missed.
fn needed(kind: &str) -> &'static [&'static str] {
    match kind {
        "gitRepo" => &["repository"],
        "iscsi" => &["targetPortal", "iqn"],
        "glusterfs" => &["endpoints", "path"],
        "rbd" => &["monitors", "image"],
        "awsElasticBlockStore" | "cinder" | "portworxVolume" => &["volumeID"],
        "cephfs" => &["monitors"],
        "flexVolume" => &["driver"],
        "azureFile" => &["secretName", "shareName"],
        "azureDisk" => &["diskName", "diskURI"],
        "vsphereVolume" => &["volumePath"],
        "photonPersistentDisk" => &["pdID"],
        "scaleIO" => &["gateway", "system", "volumeName"],
        "storageos" => &["volumeName"],
        _ => &[],
    }
}

/// Refuses a number outside of 0 to 255.
fn check_range(source: &Value, field: &str, detail: &str, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(value) = number(source, field).filter(|value| !(0..=255).contains(value)) {
        errors.push(FieldError::invalid(format!("{path}.{field}"), &json!(value), detail));
    }
}

const LUN: &str = "must be between 0 and 255, inclusive";

fn validate_iscsi(source: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let iqn = text_at(source, "iqn");
    if !iqn.is_empty() {
        check_initiator(iqn, format!("{path}.iqn"), errors);
    }
    check_range(source, "lun", LUN, path, errors);
    let is_on = |key: &str| at(source, key) == Some(&json!(true));
    if (is_on("chapAuthDiscovery") || is_on("chapAuthSession")) && source.get("secretRef").is_none() {
        errors.push(FieldError::required(format!("{path}.secretRef"), ""));
    }
    if let Some(initiator) = source.get("initiatorName").and_then(Value::as_str) {
        check_initiator(initiator, format!("{path}.initiatorname"), errors);
    }
}

/// A name of an end of an iSCSI session.
fn check_initiator(text: &str, field: String, errors: &mut Vec<FieldError>) {
    let word = |text: &str, length: usize| {
        // After the prefix stands any one character.
        let rest = text.get(4..).unwrap_or_default();
        rest.len() == length && rest.bytes().all(|b| b.is_ascii_alphanumeric())
    };
    let fine = match text.get(..3) {
        Some("iqn") => is_qualified(text),
        Some("eui") => word(text, 16),
        Some("naa") => word(text, 32),
        _ => {
            let detail = "must be valid format starting with iqn, eui, or naa";
            errors.push(FieldError::invalid(field, &json!(text), detail));
            return;
        }
    };
    if !fine {
        errors.push(FieldError::invalid(field, &json!(text), "must be valid format"));
    }
}

/// `iqn.<year>-<month>.<domain>:<name>`.
fn is_qualified(text: &str) -> bool {
    let Some((dated, own)) = text.strip_prefix("iqn.").and_then(|rest| rest.split_once(':')) else {
        return false;
    };
    let mut parts = dated.splitn(2, '.');
    let (date, domain) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let digits = |text: &str, count: usize| text.len() == count && text.bytes().all(|b| b.is_ascii_digit());
    date.split_once('-').is_some_and(|(year, month)| digits(year, 4) && digits(month, 2))
        && !domain.is_empty()
        && domain.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.')
        && !own.is_empty()
        && !own.contains(|c: char| ",;*&$|".contains(c) || c.is_whitespace())
}

fn validate_flocker(source: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let (dataset, uuid) = (text_at(source, "datasetName"), text_at(source, "datasetUUID"));
    match (dataset.is_empty(), uuid.is_empty()) {
        (true, true) => {
            errors.push(FieldError::required(path, "one of datasetName and datasetUUID is required"));
        }
        (false, false) => {
            let detail = "datasetName and datasetUUID can not be specified simultaneously";
            errors.push(FieldError::invalid(path, &json!("resource"), detail));
        }
        _ => {}
    }
    if dataset.contains('/') {
        let field = format!("{path}.datasetName");
        errors.push(FieldError::invalid(field, &json!(dataset), "must not contain '/'"));
    }
}

fn validate_quobyte(source: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let registry = text_at(source, "registry");
    let field = format!("{path}.registry");
    if registry.is_empty() {
        errors.push(FieldError::required(field, REGISTRY));
    } else if text_at(source, "tenant").len() > 64 {
        let detail = "must be a UUID and may not exceed a length of 64 characters";
        errors.push(FieldError::required(format!("{path}.tenant"), detail));
    } else {
        for _ in registry.split(',').filter(|pair| !is_host_and_port(pair)) {
            errors.push(FieldError::invalid(field.clone(), &json!(registry), REGISTRY));
        }
    }
    required(source, &format!("{path}."), "volume", errors);
}

/// `<host>:<port>`, with an address of version 6 in brackets.
fn is_host_and_port(pair: &str) -> bool {
    let Some((host, _)) = pair.rsplit_once(':') else { return false };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    bare.map_or_else(|| !host.contains([':', '[', ']']), |host| !host.contains(['[', ']']))
}

fn validate_fibre(source: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let (names, ids) = (items(source, "targetWWNs"), items(source, "wwids"));
    let field = format!("{path}.targetWWNs");
    match (names.is_empty(), ids.is_empty()) {
        (true, true) => {
            let detail = "must specify either targetWWNs or wwids, but not both";
            errors.push(FieldError::required(field, detail));
        }
        (false, false) => {
            let detail = "targetWWNs and wwids can not be specified simultaneously";
            errors.push(FieldError::invalid(field, &json!(names), detail));
        }
        _ => {}
    }
    if !names.is_empty() && source.get("lun").is_none() {
        let detail = "lun is required if targetWWNs is specified";
        errors.push(FieldError::required(format!("{path}.lun"), detail));
    } else if !names.is_empty() {
        check_range(source, "lun", LUN, path, errors);
    }
}

/// Options of a driver, none of which is Kubernetes' own.
fn validate_options(source: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for key in source.get("options").and_then(Value::as_object).into_iter().flat_map(|options| options.keys())
    {
        let domain =
            format!(".{}", key.split_once('/').map_or(key.as_str(), |(domain, _)| domain).to_lowercase());
        if [".kubernetes.io", ".k8s.io"].iter().any(|end| domain.ends_with(end)) {
            let detail = "kubernetes.io and k8s.io namespaces are reserved";
            errors.push(FieldError::invalid(format!("{path}.options[{key}]"), &json!(key), detail));
        }
    }
}

fn validate_azure_disk(source: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let below = format!("{path}.");
    one_of(source, &below, "cachingMode", &CACHING, errors);
    one_of(source, &below, "kind", &DISKS, errors);
    let (kind, place) = (source.get("kind").and_then(Value::as_str), text_at(source, "diskURI"));
    let (start, form) = match kind {
        Some("Managed") => ("/subscriptions/", MANAGED),
        Some(_) => ("https://", BLOB),
        None => return,
    };
    if !place.starts_with(start) {
        errors.push(FieldError::not_supported(format!("{path}.diskURI"), &json!(place), &[form]));
    }
}

fn validate_storage_os(source: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for field in ["volumeName", "volumeNamespace"] {
        let text = text_at(source, field);
        for fault in if text.is_empty() { Vec::new() } else { name::label(text) } {
            errors.push(FieldError::invalid(format!("{path}.{field}"), &json!(text), &fault));
        }
    }
}
