//! What an installation has written down about itself: its version, the values that were chosen, and which objects it made. An
//! upgrade removes what is no longer part of it, and an uninstallation knows objects of versions that it does not.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Name of the config map.
pub const INVENTORY: &str = "neonvm-install";

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Named {
    /// `v1`, `apps/v1`.
    pub api_version: String,
    /// Such as `Deployment`.
    pub kind: String,
    /// Empty for objects of the whole cluster.
    pub namespace: String,
    pub name: String,
}

impl Named {
    #[must_use]
    pub fn from_object(object: &Value) -> Self {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        Self {
            api_version: text("/apiVersion"),
            kind: text("/kind"),
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name"),
        }
    }

    /// Group of its kind; empty for the first ones.
    #[must_use]
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// Whether it is the same object, perhaps in another version of its kind.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        let key =
            |one: &Self| (one.group().to_owned(), one.kind.clone(), one.namespace.clone(), one.name.clone());
        key(self) == key(other)
    }

    fn line(&self) -> String {
        format!("{} {} {} {}", self.api_version, self.kind, dash(&self.namespace), self.name)
    }

    fn read(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let [api_version, kind, namespace, name] = words.as_slice() else { return None };
        Some(Self {
            api_version: (*api_version).to_owned(),
            kind: (*kind).to_owned(),
            namespace: if *namespace == "-" { String::new() } else { (*namespace).to_owned() },
            name: (*name).to_owned(),
        })
    }
}

impl std::fmt::Display for Named {
    /// `deployment/neonvm-system/neonvm-agent`
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = self.kind.to_lowercase();
        match self.namespace.as_str() {
            "" => write!(f, "{kind}/{}", self.name),
            namespace => write!(f, "{kind}/{namespace}/{}", self.name),
        }
    }
}

fn dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    pub version: String,
    pub values: String,
    pub objects: Vec<Named>,
}

impl Record {
    /// Of the config map. Lines that cannot be read name nothing.
    #[must_use]
    pub fn read(map: &Value) -> Self {
        let text = |key: &str| {
            map.pointer("/data").and_then(|data| data.get(key)).and_then(Value::as_str).unwrap_or_default()
        };
        Self {
            version: text("version").to_owned(),
            values: text("values.yaml").to_owned(),
            objects: text("objects").lines().filter_map(Named::read).collect(),
        }
    }
}

#[must_use]
pub fn inventory(namespace: &str, version: &str, chosen: &str, objects: &[Value]) -> Value {
    let lines: Vec<String> = objects.iter().map(|object| Named::from_object(object).line()).collect();
    let data: BTreeMap<&str, String> = [
        ("version", version.to_owned()),
        ("values.yaml", chosen.to_owned()),
        ("objects", lines.join("\n") + "\n"),
    ]
    .into();
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": INVENTORY, "namespace": namespace, "labels": {"app.kubernetes.io/part-of": "neonvm"}},
        "data": data})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_down_is_read() {
        let objects = [
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}),
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "n"}}),
        ];
        let map = inventory("n", "1.2.3", "components: [agent]\n", &objects);
        let record = Record::read(&map);
        assert_eq!((record.version.as_str(), record.values.as_str()), ("1.2.3", "components: [agent]\n"));
        assert_eq!(record.objects, objects.each_ref().map(Named::from_object));
        assert_eq!(record.objects.last().map(ToString::to_string).as_deref(), Some("deployment/n/d"));
        assert_eq!(Record::read(&json!({"data": {"objects": "a b\n\nc"}})), Record::default());
    }
}
