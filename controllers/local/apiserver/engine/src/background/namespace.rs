//! The life of a namespace: its default service account, and its end.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::context::Context;
use crate::engine::Engine;
use crate::kinds::{Kind, Verbs};
use crate::object;
use crate::options::DeleteOptions;
use crate::store::key_of;
use crate::task::Task;

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
        self.ensure("", "v1", "serviceaccounts", account, context);
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
    pub(crate) fn finish_namespace(&mut self, name: &str, context: &Context) {
        let Some(mut namespace) = self.value("/namespaces", &key_of("", name)) else { return };
        if !object::is_deleting(&namespace) {
            return;
        }
        // Of many removals the last one looks at what is left.
        let is_same = |task: &Task| matches!(task, Task::NamespaceContent(other) if other == name);
        if self.tasks.iter().any(is_same) {
            return;
        }
        let prefix = format!("{name}/");
        let Some(kind) = self.kinds.resource("", "v1", "namespaces").cloned() else { return };
        let (mut left, mut finalizers) = (BTreeMap::new(), BTreeMap::new());
        for kind in self.namespaced_kinds() {
            for (_, stored) in self.store.range(&kind.table, &prefix, None) {
                let object = crate::render::parse(&stored.json);
                *left.entry(format!("{}.{}", kind.plural, kind.group)).or_insert(0) += 1;
                for finalizer in object::finalizers(&object) {
                    *finalizers.entry(finalizer.to_owned()).or_insert(0) += 1;
                }
            }
        }
        let before = namespace.clone();
        for condition in conditions(&left, &finalizers, &context.time()) {
            let kind = object::text_at(&condition, "type");
            if !object::condition_is(&namespace, kind, object::text_at(&condition, "status"))
                || object::condition_message(&namespace, kind) != object::text_at(&condition, "message")
            {
                object::set_condition(&mut namespace, condition);
            }
        }
        if !left.is_empty() {
            if namespace != before {
                self.put_as_system(&kind, namespace);
            }
            return;
        }
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

/// How far the end of a namespace has come: what is left in it, by resource, and the finalizers that hold it.
fn conditions(left: &BTreeMap<String, u32>, finalizers: &BTreeMap<String, u32>, time: &str) -> Vec<Value> {
    let listed = |counts: &BTreeMap<String, u32>, verb: &str| {
        let each = counts.iter().map(|(name, count)| format!("{name} {verb} {count} resource instances"));
        each.collect::<Vec<_>>().join(", ")
    };
    let (content, holders) = (listed(left, "has"), listed(finalizers, "in"));
    let remain = |remains: bool, so: (&str, String), gone: (&str, &str)| match remains {
        true => ("True", so.0.to_owned(), so.1),
        false => ("False", gone.0.to_owned(), gone.1.to_owned()),
    };
    let never = |reason: &str, message: &str| ("False", reason.to_owned(), message.to_owned());
    let all = [
        (
            "NamespaceDeletionDiscoveryFailure",
            never("ResourcesDiscovered", "All resources successfully discovered"),
        ),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            never("ParsedGroupVersions", "All legacy kube types successfully parsed"),
        ),
        (
            "NamespaceDeletionContentFailure",
            never("ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
        ),
        (
            "NamespaceContentRemaining",
            remain(
                !left.is_empty(),
                ("SomeResourcesRemain", format!("Some resources are remaining: {content}")),
                ("ContentRemoved", "All content successfully removed"),
            ),
        ),
        (
            "NamespaceFinalizersRemaining",
            remain(
                !finalizers.is_empty(),
                (
                    "SomeFinalizersRemain",
                    format!("Some content in the namespace has finalizers remaining: {holders}"),
                ),
                ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
            ),
        ),
    ];
    let made = all.into_iter().map(|(kind, (status, reason, message))| {
        json!({ "type": kind, "status": status, "lastTransitionTime": time, "reason": reason, "message": message })
    });
    made.collect()
}
