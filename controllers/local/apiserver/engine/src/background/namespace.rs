//! The life of a namespace: its default service account, and its end.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::context::Context;
use crate::engine::Engine;
use crate::kinds::{Kind, Verbs};
use crate::object;
use crate::options::DeleteOptions;
use crate::store::key_of;

const KUBERNETES: &str = "kubernetes";

impl Engine {
    /// Gives a live namespace what it always has; takes a dying one apart.
    pub(crate) fn tend_namespace(&mut self, name: &str, context: &Context) {
        let Some(namespace) = self.value("/namespaces", &key_of("", name)) else { return };
        if object::is_deleting(&namespace) {
            self.empty_namespace(name, context);
            self.finish_namespace(name, context);
            return;
        }
        let metadata = |item: &str| json!({ "name": item, "namespace": name });
        let account =
            json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata("default") });
        self.create_as_system("", "v1", "serviceaccounts", account, context);
    }

    fn namespaced_kinds(&self) -> Vec<Arc<Kind>> {
        let mut tables = std::collections::BTreeSet::new();
        self.kinds
            .all()
            .filter(|kind| {
                kind.namespaced && kind.verbs == Verbs::All && tables.insert(Arc::clone(&kind.table))
            })
            .cloned()
            .collect()
    }

    fn empty_namespace(&mut self, name: &str, context: &Context) {
        let prefix = format!("{name}/");
        for kind in self.namespaced_kinds() {
            let content: Vec<Value> = self
                .store
                .range(&kind.table, &prefix, None)
                .map(|(_, stored)| crate::render::value_in(&kind, stored))
                .filter(|object| !object::is_deleting(object))
                .collect();
            for object in content {
                self.delete_as_system(&kind, &object, context, &DeleteOptions::default());
            }
        }
    }

    /// Lets a dying namespace go once nothing is left in it.
    pub(crate) fn finish_namespace(&mut self, name: &str, _context: &Context) {
        let Some(mut namespace) = self.value("/namespaces", &key_of("", name)) else { return };
        if !object::is_deleting(&namespace) {
            return;
        }
        let prefix = format!("{name}/");
        let occupied = self
            .namespaced_kinds()
            .iter()
            .any(|kind| self.store.range(&kind.table, &prefix, None).next().is_some());
        if occupied {
            return;
        }
        let Some(kind) = self.kinds.resource("", "v1", "namespaces").cloned() else { return };
        let before: Vec<&str> = object::strings(object::at(&namespace, "spec.finalizers"));
        let rest: Vec<String> =
            before.iter().filter(|f| **f != KUBERNETES).map(|f| (*f).to_owned()).collect();
        let changed = rest.len() != before.len();
        let spec = object::child_mut(&mut namespace, "spec");
        if rest.is_empty() {
            spec.remove("finalizers");
        } else {
            spec.insert("finalizers".into(), json!(rest));
        }
        if rest.is_empty() && object::finalizers(&namespace).is_empty() {
            self.remove(&kind, &key_of("", name), namespace);
        } else if changed {
            self.put_as_system(&kind, namespace);
        }
    }
}
