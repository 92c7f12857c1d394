//! The custom resource definitions, as an API server takes them.
//!
//! Programs carry them as text. Their generator pulls in the schema of every type of Kubernetes that ours contain, 2.3 MB
//! of code, so that only the test that writes and compares the text calls it.

mod faults;
mod unknown;

use std::collections::BTreeMap;

use kube::CustomResourceExt;
use serde_json::Value;

use crate::{
    ip_pool::IPPool, migration::VirtualMachineMigration, migration_policy::MigrationPolicy,
    pod_autoscaler::PodAutoscaler, removed, schema::make_structural, schema::rules,
    virtual_machine::VirtualMachine,
};

pub(crate) use faults::faults;
pub use unknown::{UnknownField, unknown_fields};

/// All definitions: `VirtualMachine`, `VirtualMachineMigration`, `MigrationPolicy`, `IPPool`, `PodAutoscaler`.
#[must_use]
pub fn crds() -> Vec<Value> {
    // A golden test reads the same text.
    serde_json::from_str(DEFINITIONS).unwrap_or_default()
}

/// What [`generated`] returned when the file was written.
const DEFINITIONS: &str = include_str!("crd/definitions.json");

/// [`crds`], made from the types.
#[must_use]
pub fn generated() -> Vec<Value> {
    vec![
        with_rules(definition::<VirtualMachine>(), rules::virtual_machine()),
        definition::<VirtualMachineMigration>(),
        definition::<MigrationPolicy>(),
        definition::<IPPool>(),
        definition::<PodAutoscaler>(),
    ]
}

/// The schema of each kind's objects, by the kind.
#[must_use]
pub fn object_schemas() -> BTreeMap<String, Value> {
    let of = |mut crd: Value| {
        let kind = crd.pointer("/spec/names/kind")?.as_str()?.to_owned();
        Some((kind, crd.pointer_mut(SCHEMA)?.take()))
    };
    crds().into_iter().filter_map(of).collect()
}

/// Where the schema of the one version is.
const SCHEMA: &str = "/spec/versions/0/schema/openAPIV3Schema";

fn definition<T: CustomResourceExt>() -> Value {
    // Serialising the generated definition cannot fail; the golden test would see an empty one.
    let definition = T::crd();
    let mut crd = serde_json::to_value(&definition).unwrap_or_default();
    if let Some(schema) = crd.pointer_mut(SCHEMA) {
        make_structural(schema);
        removed::extend(&definition.spec.names.kind, schema);
    }
    crd
}

/// Rules at the root of the object, which sees spec and status.
fn with_rules(mut crd: Value, rules: Value) -> Value {
    if let Some(schema) = crd.pointer_mut(SCHEMA).and_then(Value::as_object_mut) {
        schema.insert("x-kubernetes-validations".to_owned(), rules);
    }
    crd
}

#[cfg(test)]
mod tests;
