//! Environment variables of containers, and what they and volumes take from the pod.

use serde_json::{Value, json};

use super::{items, name, part, required};
use crate::field::{FieldError, FieldReason};
use crate::object::{at, text_at};

/// Fields of a pod that a variable may take.
const FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// Fields of a pod that a file in a volume may take.
pub(super) const FILE_FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
/// Resources of a container that may be taken, besides huge pages.
const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// `env` and `envFrom` of the container at `path`.
pub(super) fn validate(container: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (index, variable) in items(container, "env").iter().enumerate() {
        let path = format!("{path}.env[{index}]");
        let key = text_at(variable, "name");
        if key.is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        } else {
            check_name(key, &format!("{path}.name"), errors);
        }
        if let Some(source) = variable.get("valueFrom") {
            let valued = !text_at(variable, "value").is_empty();
            validate_source(source, valued, &format!("{path}.valueFrom"), errors);
        }
    }
    validate_env_from(container, path, errors);
}

fn validate_env_from(container: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let path = format!("{path}.envFrom");
    for (index, source) in items(container, "envFrom").iter().enumerate() {
        let below = format!("{path}[{index}]");
        let prefix = text_at(source, "prefix");
        if !prefix.is_empty() {
            check_name(prefix, &format!("{below}.prefix"), errors);
        }
        let mut count = 0;
        for kind in ["configMapRef", "secretRef"] {
            let Some(reference) = source.get(kind) else { continue };
            count += 1;
            let field = format!("{below}.{kind}.name");
            let target = text_at(reference, "name");
            if target.is_empty() {
                errors.push(FieldError::required(field, ""));
                continue;
            }
            name::check(target, &field, name::subdomain, errors);
        }
        if count != 1 {
            let detail = if count == 0 {
                "must specify one of: `configMapRef` or `secretRef`"
            } else {
                "may not have more than one field specified at a time"
            };
            errors.push(FieldError::invalid(path.clone(), &json!(""), detail));
        }
    }
}

fn check_name(key: &str, field: &str, errors: &mut Vec<FieldError>) {
    if key.chars().any(|c| !(' '..='~').contains(&c) || c == '=') {
        let detail = "a valid environment variable name must consist only of printable ASCII characters other than '='";
        errors.push(FieldError::invalid(field, &json!(key), detail));
    }
}

fn validate_source(source: &Value, valued: bool, path: &str, errors: &mut Vec<FieldError>) {
    let mut count = 0;
    for kind in ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"] {
        let Some(reference) = source.get(kind) else { continue };
        count += 1;
        let path = format!("{path}.{kind}");
        match kind {
            "fieldRef" => validate_field(reference, &FIELDS, &path, errors),
            "resourceFieldRef" => validate_resource(reference, false, &path, errors),
            "fileKeyRef" => validate_file_key(reference, &path, errors),
            _ => validate_key(reference, &path, errors),
        }
    }
    let detail = match count {
        0 => {
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        }
        _ if valued => "may not be specified when `value` is not empty",
        1 => return,
        _ => "may not have more than one field specified at a time",
    };
    errors.push(FieldError::invalid(path, &json!(""), detail));
}

/// A key of a config map or secret.
fn validate_key(reference: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let target = text_at(reference, "name");
    name::check(target, &format!("{path}.name"), name::subdomain, errors);
    let key = text_at(reference, "key");
    if key.is_empty() {
        errors.push(FieldError::required(format!("{path}.key"), ""));
        return;
    }
    name::check(key, &format!("{path}.key"), name::config_key, errors);
}

/// A key of a file in a volume.
fn validate_file_key(reference: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let texts =
        ["key", "volumeName", "path"].map(|field| (text_at(reference, field), format!("{path}.{field}")));
    for ((text, field), number) in texts.iter().zip(0..) {
        if text.is_empty() {
            errors.push(FieldError::required(field.clone(), ""));
            continue;
        }
        match number {
            0 => check_name(text, field, errors),
            1 => {
                name::check(text, field, name::label, errors);
            }
            _ => part::check_steps(text, field, errors),
        }
    }
}

/// The volumes that the variables of the pod spec at `prefix` come from: files that a container writes.
pub(super) fn validate_files(spec: &Value, prefix: &str, errors: &mut Vec<FieldError>) {
    let volumes = items(spec, "volumes");
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for (index, container) in items(spec, list).iter().enumerate() {
            for (number, variable) in items(container, "env").iter().enumerate() {
                let Some(reference) = at(variable, "valueFrom.fileKeyRef") else { continue };
                let name = text_at(reference, "volumeName");
                let field = format!("{prefix}{list}[{index}].env[{number}].valueFrom.fileKeyRef.volumeName");
                match volumes.iter().rfind(|volume| text_at(volume, "name") == name) {
                    None => {
                        let fault = FieldError::with_value(FieldReason::NotFound, field, &json!(name), "");
                        errors.push(fault);
                    }
                    Some(volume) if volume.get("emptyDir").is_none() => {
                        let detail = "referenced volume must be of type emptyDir";
                        errors.push(FieldError::invalid(field, &json!(name), detail));
                    }
                    Some(_) => {}
                }
            }
        }
    }
}

/// A field of the pod.
pub(super) fn validate_field(reference: &Value, known: &[&str], path: &str, errors: &mut Vec<FieldError>) {
    let (version, field) = (text_at(reference, "apiVersion"), text_at(reference, "fieldPath"));
    if version.is_empty() || field.is_empty() {
        required(
            reference,
            &format!("{path}."),
            if version.is_empty() { "apiVersion" } else { "fieldPath" },
            errors,
        );
        return;
    }
    let subscript = field.strip_suffix("']").and_then(|rest| rest.split_once("['"));
    let refused = |detail: &str| {
        let detail = format!("error converting fieldPath: {detail}");
        FieldError::invalid(format!("{path}.fieldPath"), &json!(field), &detail)
    };
    if version != "v1" {
        errors.push(refused(&format!("unsupported pod version: {version}")));
        return;
    }
    match subscript.filter(|(map, _)| !map.is_empty()) {
        Some((map @ ("metadata.annotations" | "metadata.labels"), key)) => {
            let key = if map == "metadata.annotations" { key.to_lowercase() } else { key.to_owned() };
            name::check(&key, path, name::qualified, errors);
        }
        Some(_) => errors.push(refused(&format!("field label does not support subscript: {field}"))),
        None if !is_label(field) => errors.push(refused(&format!("field label not supported: {field}"))),
        None => {
            let field = if field == "spec.host" { "spec.nodeName" } else { field };
            if !known.contains(&field) {
                errors.push(FieldError::not_supported(format!("{path}.fieldPath"), &json!(field), known));
            }
        }
    }
}

/// Whether a pod has such a field at all, for whatever purpose.
fn is_label(field: &str) -> bool {
    let others = ["spec.host", "spec.restartPolicy", "spec.schedulerName", "status.phase"].contains(&field);
    others || FIELDS.contains(&field) || FILE_FIELDS.contains(&field)
}

/// A resource of a container; a volume has to name the container.
pub(super) fn validate_resource(
    reference: &Value,
    in_volume: bool,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let resource = text_at(reference, "resource");
    let pages = resource.starts_with("limits.hugepages-") || resource.starts_with("requests.hugepages-");
    if in_volume && text_at(reference, "containerName").is_empty() {
        errors.push(FieldError::required(format!("{path}.containerName"), ""));
    } else if resource.is_empty() {
        errors.push(FieldError::required(format!("{path}.resource"), ""));
    } else if !pages && !RESOURCES.contains(&resource) {
        errors.push(FieldError::not_supported(format!("{path}.resource"), &json!(resource), &RESOURCES));
    }
    let divisor = text_at(reference, "divisor");
    if matches!(divisor, "" | "0") {
        return;
    }
    let bytes = ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
    let detail = match resource {
        "limits.cpu" | "requests.cpu" if !["1m", "1"].contains(&divisor) => {
            "only divisor's values 1m and 1 are supported with the cpu resource".to_owned()
        }
        "limits.cpu" | "requests.cpu" => return,
        _ if bytes.contains(&divisor) => return,
        _ => {
            let what = match resource.split_once('.').map_or("", |(_, what)| what) {
                "memory" => "memory",
                "ephemeral-storage" => "local ephemeral storage",
                _ if pages => "hugepages",
                _ => return,
            };
            format!("only divisor's values {} are supported with the {what} resource", bytes.join(", "))
        }
    };
    errors.push(FieldError::invalid(format!("{path}.divisor"), &json!(resource), &detail));
}
