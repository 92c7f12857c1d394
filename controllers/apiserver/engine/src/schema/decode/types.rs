//! What Go's types have and the schemas do not: names of texts and maps, and structs whose fields are those of another struct.
//! The names are those that a kube-apiserver 1.36 wrote for each field.

use std::collections::BTreeMap;
use std::sync::OnceLock;

/// `Struct.field` and the type of the field; of a list, that of its items.
const TABLE: &str = include_str!("types.txt");

/// The name of the Go type of a field that is a text, a map of amounts, or a list of texts; `None` for those without a name.
pub(super) fn named(owner: &str, field: &str) -> Option<&'static str> {
    static TYPES: OnceLock<BTreeMap<&'static str, &'static str>> = OnceLock::new();
    let types = TYPES.get_or_init(|| TABLE.lines().filter_map(|line| line.split_once(' ')).collect());
    types.get(format!("{owner}.{field}").as_str()).copied()
}

/// The embedded struct that a field belongs to.
pub(super) fn embedded(owner: &str, field: &str) -> Option<&'static str> {
    match owner {
        "PersistentVolumeSpec" if !OF_VOLUMES.contains(&field) => Some("PersistentVolumeSource"),
        "Volume" if field != "name" => Some("VolumeSource"),
        "Probe" if ["exec", "grpc", "httpGet", "tcpSocket"].contains(&field) => Some("ProbeHandler"),
        "EphemeralContainer" if field != "targetContainerName" => Some("EphemeralContainerCommon"),
        "RuleWithOperations" if field != "operations" => Some("Rule"),
        "SecretProjection"
        | "ConfigMapProjection"
        | "ConfigMapVolumeSource"
        | "SecretEnvSource"
        | "ConfigMapEnvSource"
        | "SecretKeySelector"
        | "ConfigMapKeySelector"
            if field == "name" =>
        {
            Some("LocalObjectReference")
        }
        _ => None,
    }
}

/// What a persistent volume has beside its source.
pub(crate) const OF_VOLUMES: [&str; 9] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];
