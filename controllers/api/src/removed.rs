//! Fields that older versions had: accepted without effect, or moved to the field of today, with a warning.
//!
//! One table for the definitions, which have each so that a strict client is not refused, for admission and for the CLI.

use serde_json::{Value, json};

use crate::FieldError;

/// A field of older versions.
struct Removed {
    kind: &'static str,
    /// As `spec.guest.memoryProvider`.
    path: &'static str,
    /// What holds instead.
    instead: &'static str,
}

const TLS: &str = "no release had it, only a file of v0.42 to v0.45; the fields of spec.tls do what it names";
const REMOVED: [Removed; 5] = [
    Removed { kind: "VirtualMachine", path: "spec.tlsCertificateIssuer", instead: TLS },
    Removed { kind: "VirtualMachine", path: "spec.tlsExpiration", instead: TLS },
    Removed { kind: "VirtualMachine", path: "spec.tlsRenewal", instead: TLS },
    Removed {
        kind: "VirtualMachine",
        path: "spec.guest.memoryProvider",
        instead: "memory is always plugged by virtio-mem; DIMMSlots is not supported",
    },
    Removed {
        kind: "VirtualMachine",
        path: "spec.extraNetwork.multusNetworkNoIP",
        instead: "the overlay assigns the address; name its network attachment in multusNetwork",
    },
];

/// Warnings about the fields in an object of `kind` that have no effect. What an older version wrote in another form gets the form
/// of today, in place.
pub(crate) fn take(kind: &str, object: &mut Value) -> Vec<FieldError> {
    let is_set = |one: &&Removed| object.pointer(&pointer(one.path)).is_some_and(|value| !value.is_null());
    let warning = |one: &Removed| FieldError {
        path: one.path.to_owned(),
        message: format!("has no effect: {}", one.instead),
    };
    let mut warnings: Vec<FieldError> = rows(kind).filter(is_set).map(warning).collect();
    warnings.extend((kind == "VirtualMachine").then(|| swap(object)).flatten());
    warnings
}

/// v0.28.0 had today's `swapInfo` under the name `swap`.
fn swap(object: &mut Value) -> Option<FieldError> {
    let settings = object.pointer_mut("/spec/guest/settings")?.as_object_mut()?;
    if settings.contains_key("swapInfo") || !settings.get("swap")?.is_object() {
        return None;
    }
    let swap = settings.remove("swap")?;
    settings.insert("swapInfo".to_owned(), swap);
    Some(FieldError {
        path: "spec.guest.settings.swap".to_owned(),
        message: "is an object, as in v0.28.0, and is taken as swapInfo; write its size, or swapInfo"
            .to_owned(),
    })
}

/// Adds to the schema of `kind` the fields that its type does not have.
pub(crate) fn extend(kind: &str, schema: &mut Value) {
    for one in rows(kind) {
        let (parent, name) = one.path.rsplit_once('.').unwrap_or_default();
        let at = format!("/properties/{}/properties", parent.replace('.', "/properties/"));
        if let Some(properties) = schema.pointer_mut(&at).and_then(Value::as_object_mut) {
            let text = format!("Has no effect; kept so that existing manifests are read: {}.", one.instead);
            properties.insert(name.to_owned(), json!({ "type": "string", "description": text }));
        }
    }
}

fn rows(kind: &str) -> impl Iterator<Item = &'static Removed> {
    REMOVED.iter().filter(move |one| one.kind == kind)
}

fn pointer(path: &str) -> String {
    format!("/{}", path.replace('.', "/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crd::unknown_fields;

    #[test]
    fn removed_fields_are_known_and_warned_about() {
        let mut object = json!({"kind": "VirtualMachine", "spec": {
            "guest": {"memoryProvider": "DIMMSlots", "settings": {"swap": {"size": "1Gi", "skipSwapon": true}}},
            "extraNetwork": {"enable": true, "multusNetworkNoIP": "a/b"}}});
        let warnings = take("VirtualMachine", &mut object);
        let paths: Vec<&str> = warnings.iter().map(|one| one.path.as_str()).collect();
        assert_eq!(
            paths,
            ["spec.guest.memoryProvider", "spec.extraNetwork.multusNetworkNoIP", "spec.guest.settings.swap"]
        );
        assert_eq!(unknown_fields("VirtualMachine", &object), []);
        let settings = json!({"swapInfo": {"size": "1Gi", "skipSwapon": true}});
        assert_eq!(object.pointer("/spec/guest/settings"), Some(&settings));
        assert_eq!(
            take("VirtualMachine", &mut json!({"spec": {"guest": {"settings": {"swap": "1Gi"}}}})),
            []
        );
        assert_eq!(take("IPPool", &mut object), []);
    }
}
