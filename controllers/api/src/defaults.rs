//! Defaults, taken from the schemas so that there is one list of them.

use std::{collections::BTreeMap, sync::OnceLock};

use serde_json::Value;

use crate::crd;

/// Deeper schemas than this do not occur; the limit keeps the recursion finite.
const MAX_DEPTH: usize = 64;

/// [`crd::object_schemas`], read once.
pub(crate) fn schemas() -> &'static BTreeMap<String, Value> {
    static SCHEMAS: OnceLock<BTreeMap<String, Value>> = OnceLock::new();
    SCHEMAS.get_or_init(crd::object_schemas)
}

/// Fills in what an object of `kind` leaves out, in place, as the API server does by the schema: an absent field, or one
/// that is null, gets its default. Objects of other kinds are left alone.
pub fn apply_defaults(kind: &str, object: &mut Value) {
    if let Some(schema) = schemas().get(kind) {
        fill(schema, object, 0);
    }
}

fn fill(schema: &Value, value: &mut Value, depth: usize) {
    if depth > MAX_DEPTH {
        return;
    }
    match value {
        Value::Object(fields) => {
            let properties = schema.get("properties").and_then(Value::as_object);
            for (name, property) in properties.into_iter().flatten() {
                if let Some(default) = property.get("default")
                    && fields.get(name).is_none_or(Value::is_null)
                {
                    fields.insert(name.clone(), default.clone());
                }
                if let Some(field) = fields.get_mut(name) {
                    fill(property, field, depth + 1);
                }
            }
            if let Some(values) = schema.get("additionalProperties") {
                fields.values_mut().for_each(|field| fill(values, field, depth + 1));
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                items.iter_mut().for_each(|item| fill(schema, item, depth + 1));
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The stored form of the specification's example, for a user who wrote only sizes and an image.
    #[test]
    fn a_small_machine_gets_every_default() {
        let mut vm = json!({"spec": {"cpuScalingMode": "QmpScaling", "guest": {
            "cpus": {"min": 0.25, "max": 1, "use": 0.25},
            "memorySlots": {"min": 1, "max": 4, "use": 1},
            "rootDisk": {"image": "img:tag"},
        }}, "status": {}});
        assert_eq!(crate::normalise("VirtualMachine", &mut vm), []);
        apply_defaults("VirtualMachine", &mut vm);
        let expected = json!({"spec": {
            "qmp": 20183, "qmpManual": 20184, "runnerPort": 25183, "terminationGracePeriodSeconds": 5,
            "podResources": {}, "restartPolicy": "Always", "enableAcceleration": true, "enableSSH": true,
            "enableNetworkMonitoring": false, "cpuScalingMode": "QmpScaling",
            "guest": {
                "cpus": {"min": "250m", "max": 1, "use": "250m"}, "memorySlotSize": "1Gi",
                "memorySlots": {"min": 1, "max": 4, "use": 1},
                "rootDisk": {"image": "img:tag", "size": "0", "imagePullPolicy": "IfNotPresent"},
            },
        }, "status": {"restartCount": 0}});
        assert_eq!(vm, expected);
    }

    #[test]
    fn nulls_get_defaults_and_lists_are_entered() {
        let mut vm = json!({"spec": {"qmp": null, "guest": {"ports": [{"port": 80}], "env": [{"name": "A"}]},
            "disks": [{"name": "d"}], "tls": {}, "extraNetwork": {"enable": true}}});
        apply_defaults("VirtualMachine", &mut vm);
        assert_eq!(vm.pointer("/spec/qmp"), Some(&json!(20183)));
        assert_eq!(vm.pointer("/spec/guest/ports/0/protocol"), Some(&json!("TCP")));
        assert_eq!(vm.pointer("/spec/guest/env/0/value"), Some(&json!("")));
        assert_eq!(
            vm.pointer("/spec/disks/0"),
            Some(&json!({"name": "d", "readOnly": false, "watch": false}))
        );
        assert_eq!(
            vm.pointer("/spec/tls"),
            Some(&json!({"expireAfter": "0s", "renewBefore": "0s", "mountPath": "/var/tls"}))
        );
        assert_eq!(vm.pointer("/spec/extraNetwork"), Some(&json!({"enable": true, "interface": "net1"})));
    }

    #[test]
    fn a_migration_gets_its_defaults() {
        let mut migration = json!({"spec": {"vmName": "a", "autoConverge": false}});
        apply_defaults("VirtualMachineMigration", &mut migration);
        let expected = json!({"spec": {"vmName": "a", "preventMigrationToSameHost": true, "completionTimeout": 3600,
            "incremental": true, "allowPostCopy": false, "autoConverge": false, "maxBandwidth": "1Gi"}});
        assert_eq!(migration, expected);
        let typed: crate::VirtualMachineMigrationSpec =
            serde_json::from_value(expected["spec"].clone()).unwrap();
        let mut rust = crate::VirtualMachineMigrationSpec::new("a");
        rust.auto_converge = false;
        assert_eq!(typed, rust);
    }
}
