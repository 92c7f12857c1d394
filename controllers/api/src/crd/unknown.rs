//! Fields of an object that its schema does not have, which a server drops.

use serde_json::Value;

use crate::defaults::schemas;

/// A field that the schema does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownField {
    /// Where it is, as `spec.guest.cpu`.
    pub path: String,
    /// The fields that its object may have.
    pub known: Vec<String>,
}

/// The unknown fields of an object of `kind`, in the order of the object. None for kinds of other groups.
#[must_use]
pub fn unknown_fields(kind: &str, object: &Value) -> Vec<UnknownField> {
    let mut found = Vec::new();
    if let Some(schema) = schemas().get(kind) {
        look(object, schema, "", &mut found);
    }
    found
}

fn look(value: &Value, schema: &Value, path: &str, found: &mut Vec<UnknownField>) {
    match value {
        Value::Array(items) => {
            let Some(of_items) = schema.get("items") else { return };
            for (index, item) in items.iter().enumerate() {
                look(item, of_items, &format!("{path}[{index}]"), found);
            }
        }
        Value::Object(fields) => {
            let properties = schema.get("properties").and_then(Value::as_object);
            let others = schema.get("additionalProperties");
            for (name, field) in fields {
                let at = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                if let Some(of_field) = properties.and_then(|known| known.get(name)).or(others) {
                    look(field, of_field, &at, found);
                } else if is_closed(schema, path, name) {
                    let known = properties.map(|known| known.keys().cloned().collect()).unwrap_or_default();
                    found.push(UnknownField { path: at, known });
                }
            }
        }
        _ => {}
    }
}

/// Whether a field that the schema does not name is dropped: not that of an object without any named field, and not what every object has.
fn is_closed(schema: &Value, path: &str, name: &str) -> bool {
    let open = schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
    let of_every_object = path.is_empty() && ["apiVersion", "kind", "metadata"].contains(&name);
    schema.get("properties").is_some() && !open && !of_every_object
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_without_a_place_in_the_schema_are_found() {
        let object = json!({"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "specs": {},
            "metadata": {"name": "a", "labels": {"any": "x"}}, "spec": {
                "nodeSelector": {"any": "x"}, "podResources": {"limits": {"cpu": "1"}},
                "guest": {"cpu": {"min": 1}, "cpus": {"min": 1, "least": 1}, "rootDisk": {"image": "a"},
                    "ports": [{"port": 1}, {"prt": 2}], "env": [{"name": "A", "value": "b"}]}}});
        let found = unknown_fields("VirtualMachine", &object);
        let mut paths: Vec<&str> = found.iter().map(|one| one.path.as_str()).collect();
        paths.sort_unstable();
        assert_eq!(paths, ["spec.guest.cpu", "spec.guest.cpus.least", "spec.guest.ports[1].prt", "specs"]);
        let cpu = found.iter().find(|one| one.path == "spec.guest.cpu").unwrap();
        assert!(cpu.known.contains(&"cpus".to_owned()), "{cpu:?}");
        assert_eq!(unknown_fields("Pod", &object), []);
    }
}
