//! The name of a namespaced object.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Namespace and name; JSON `{"namespace":"ns","name":"n"}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NamespacedName {
    /// Namespace of the object.
    #[serde(default)]
    pub namespace: String,
    /// The name inside the namespace.
    #[serde(default)]
    pub name: String,
}

impl NamespacedName {
    /// Puts the two parts together.
    #[must_use]
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for NamespacedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_namespace_first() {
        let json = serde_json::to_string(&NamespacedName::new("ns", "n")).unwrap();
        assert_eq!(json, r#"{"namespace":"ns","name":"n"}"#);
    }
}
