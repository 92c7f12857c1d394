//! What a volume is made of.

use serde_json::{Value, json};

use crate::builtin::{env, items, name, number, one_of, part, required};
use crate::field::FieldError;
use crate::object::{at, text_at};

const HOST_PATH_TYPES: [&str; 8] =
    ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
const MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

/// The source at `path`; old kinds are fine here. A template of a pod may leave some fields out.
pub(super) fn validate(kind: &str, source: &Value, path: &str, in_pod: bool, errors: &mut Vec<FieldError>) {
    let below = format!("{path}.");
    let mut need = |fields: &[&str]| fields.iter().for_each(|field| required(source, &below, field, errors));
    match kind {
        "emptyDir" => validate_empty_dir(source, path, errors),
        "hostPath" => validate_host_path(source, path, errors),
        "secret" | "configMap" => {
            need(&[if kind == "secret" { "secretName" } else { "name" }]);
            check_mode(source, "defaultMode", path, errors);
            validate_keys(source, path, &mut Vec::new(), errors);
        }
        "nfs" => {
            need(&["server", "path"]);
            if !text_at(source, "path").starts_with('/') {
                let value = json!(text_at(source, "path"));
                errors.push(FieldError::invalid(format!("{path}.path"), &value, "must be an absolute path"));
            }
        }
        "persistentVolumeClaim" => need(&["claimName"]),
        "downwardAPI" => {
            check_mode(source, "defaultMode", path, errors);
            for file in items(source, "items") {
                validate_file(file, path, errors);
            }
        }
        "projected" => {
            check_mode(source, "defaultMode", path, errors);
            validate_projected(source, path, errors);
        }
        "csi" => validate_csi(source, path, errors),
        "ephemeral" if source.get("volumeClaimTemplate").is_none() => need(&["volumeClaimTemplate"]),
        "ephemeral" => {
            let claim = source.get("volumeClaimTemplate").unwrap_or(&Value::Null);
            super::validate_claim_spec(claim, &format!("{path}.volumeClaimTemplate."), errors);
        }
        "image" => {
            if in_pod {
                need(&["reference"]);
            }
            one_of(source, &below, "pullPolicy", &["Always", "IfNotPresent", "Never"], errors);
        }
        _ => {}
    }
}

fn validate_empty_dir(source: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if text_at(source, "sizeLimit").starts_with('-') {
        let detail = "SizeLimit field must be a valid resource quantity";
        errors.push(FieldError::forbidden(format!("{path}.sizeLimit"), detail));
    }
}

fn validate_host_path(source: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let place = text_at(source, "path");
    if place.is_empty() {
        errors.push(FieldError::required(format!("{path}.path"), ""));
        return;
    }
    part::check_steps(place, &format!("{path}.path"), errors);
    one_of(source, &format!("{path}."), "type", &HOST_PATH_TYPES, errors);
}

fn validate_csi(source: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let driver = text_at(source, "driver");
    let field = format!("{path}.driver");
    if driver.is_empty() {
        errors.push(FieldError::required(field.clone(), ""));
    } else {
        if driver.len() > 63 {
            errors.push(FieldError::too_long(field.clone(), 63));
        }
        for fault in name::subdomain(&driver.to_lowercase()) {
            errors.push(FieldError::invalid(field.clone(), &json!(driver), &fault));
        }
    }
    let Some(secret) = at(source, "nodePublishSecretRef") else { return };
    let secret = text_at(secret, "name");
    if secret.is_empty() {
        errors.push(FieldError::required(format!("{path}.nodePublishSecretRef.name"), ""));
        return;
    }
    name::check(secret, &format!("{path}.name"), name::subdomain, errors);
}

fn check_mode(holder: &Value, field: &str, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(mode) = number(holder, field).filter(|mode| !(0..=0o777).contains(mode)) {
        errors.push(FieldError::invalid(format!("{path}.{field}"), &json!(mode), MODE));
    }
}

/// `items` of a secret or config map; adds their paths to `taken`.
fn validate_keys(source: &Value, path: &str, taken: &mut Vec<String>, errors: &mut Vec<FieldError>) {
    for (index, item) in items(source, "items").iter().enumerate() {
        let path = format!("{path}.items[{index}]");
        let below = format!("{path}.");
        required(item, &below, "key", errors);
        required(item, &below, "path", errors);
        check_local(text_at(item, "path"), &format!("{path}.path"), errors);
        check_mode(item, "mode", &path, errors);
        taken.push(text_at(item, "path").to_owned());
    }
}

/// A file that holds a field of the pod.
fn validate_file(file: &Value, path: &str, errors: &mut Vec<FieldError>) {
    required(file, &format!("{path}."), "path", errors);
    check_local(text_at(file, "path"), &format!("{path}.path"), errors);
    match (file.get("fieldRef"), file.get("resourceFieldRef")) {
        (Some(field), resource) => {
            env::validate_field(field, &env::FILE_FIELDS, &format!("{path}.fieldRef"), errors);
            if resource.is_some() {
                let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
                errors.push(FieldError::invalid(path, &json!("resource"), detail));
            }
        }
        (None, Some(resource)) => {
            env::validate_resource(resource, true, &format!("{path}.resourceFieldRef"), errors);
        }
        (None, None) => {
            errors.push(FieldError::required(path, "one of fieldRef and resourceFieldRef is required"));
        }
    }
    check_mode(file, "mode", path, errors);
}

/// What is projected into one volume: each path once.
fn validate_projected(volume: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let mut taken: Vec<String> = Vec::new();
    for (index, source) in items(volume, "sources").iter().enumerate() {
        let place = format!("{path}.sources[{index}]");
        for kind in ["secret", "configMap"] {
            let Some(source) = source.get(kind) else { continue };
            let place = format!("{place}.{kind}");
            required(source, &format!("{place}."), "name", errors);
            let mut paths = Vec::new();
            validate_keys(source, &place, &mut paths, errors);
            take(&mut taken, paths, path, Some(text_at(source, "name")), errors);
        }
        if let Some(source) = source.get("downwardAPI") {
            for file in items(source, "items") {
                validate_file(file, &format!("{place}.downwardAPI"), errors);
                take(&mut taken, vec![text_at(file, "path").to_owned()], path, None, errors);
            }
        }
        if let Some(token) = source.get("serviceAccountToken") {
            validate_token(token, &format!("{place}.serviceAccountToken"), path, errors);
        }
        if source.as_object().is_some_and(|kinds| kinds.len() > 1) {
            let why = "may not specify more than 1 volume type per source";
            errors.push(FieldError::forbidden(place, why));
        }
    }
}

/// Notes paths; one that is taken is refused by the name of its source, or else by itself.
fn take(
    taken: &mut Vec<String>,
    paths: Vec<String>,
    field: &str,
    source: Option<&str>,
    errors: &mut Vec<FieldError>,
) {
    for path in paths.into_iter().filter(|path| !path.is_empty()) {
        if taken.contains(&path) {
            let shown = json!(source.unwrap_or(&path));
            errors.push(FieldError::invalid(field, &shown, "conflicting duplicate paths"));
        } else {
            taken.push(path);
        }
    }
}

fn validate_token(token: &Value, place: &str, path: &str, errors: &mut Vec<FieldError>) {
    let seconds = number(token, "expirationSeconds").unwrap_or(0);
    let field = format!("{place}.expirationSeconds");
    if seconds < 600 {
        let detail = "may not specify a duration less than 10 minutes";
        errors.push(FieldError::invalid(field, &json!(seconds), detail));
    } else if seconds > 1 << 32 {
        let detail = "may not specify a duration larger than 2^32 seconds";
        errors.push(FieldError::invalid(field, &json!(seconds), detail));
    }
    let field = format!("{path}.path");
    match text_at(token, "path") {
        "" => errors.push(FieldError::required(field, "")),
        local => check_local(local, &field, errors),
    }
}

/// A relative path that stays below where it begins.
pub(in crate::builtin) fn check_descending(path: &str, field: &str, errors: &mut Vec<FieldError>) {
    if path.starts_with('/') {
        errors.push(FieldError::invalid(field, &json!(path), "must be a relative path"));
    }
    part::check_steps(path, field, errors);
}

fn check_local(path: &str, field: &str, errors: &mut Vec<FieldError>) {
    check_descending(path, field, errors);
    if path.starts_with("..") && path != ".." && !path.starts_with("../") {
        errors.push(FieldError::invalid(field, &json!(path), "must not start with '..'"));
    }
}
