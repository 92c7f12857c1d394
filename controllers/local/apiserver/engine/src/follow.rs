//! What follows from a stored change: indexes, access rules, webhooks, served kinds.

use std::sync::Arc;

use serde_json::Value;

use crate::access::RuleIndex;
use crate::admission::Webhooks;
use crate::background::collect::is_propagation;
use crate::crd::CustomKind;
use crate::engine::Engine;
use crate::head::Head;
use crate::kinds::Kind;
use crate::object;
use crate::render;
use crate::store::Stored;
use crate::task::Task;

pub(crate) const DEFINITIONS: &str = "apiextensions.k8s.io/customresourcedefinitions";
const MUTATING: &str = "admissionregistration.k8s.io/mutatingwebhookconfigurations";
const VALIDATING: &str = "admissionregistration.k8s.io/validatingwebhookconfigurations";

impl Engine {
    pub(crate) fn values(&self, table: &str) -> Vec<Value> {
        self.store.range(table, "", None).map(|(_, stored)| render::parse(&stored.json)).collect()
    }

    pub(crate) fn values_in(&self, table: &str, namespace: &str) -> Vec<Value> {
        let prefix = format!("{namespace}/");
        let range = self.store.range(table, &prefix, None);
        range.map(|(_, stored)| render::parse(&stored.json)).collect()
    }

    pub(crate) fn reload_rules(&mut self) {
        let of = |name: &str| self.values(&format!("rbac.authorization.k8s.io/{name}"));
        self.rules = RuleIndex::build(
            &of("roles"),
            &of("clusterroles"),
            &of("rolebindings"),
            &of("clusterrolebindings"),
        );
    }

    pub(crate) fn reload_webhooks(&mut self) {
        self.webhooks = Webhooks::read(&self.values(MUTATING), &self.values(VALIDATING));
    }

    pub(crate) fn note_ending(&mut self, definition: &Value) {
        if object::is_deleting(definition) {
            self.ending.insert(object::name(definition).to_owned());
        }
    }

    /// Serves a definition whose conditions include `Established`.
    pub(crate) fn serve(&mut self, definition: &Value) {
        let established = crate::object::condition_is(definition, "Established", "True");
        let Ok(custom) = CustomKind::read(definition) else { return };
        if established {
            self.store.open_table(&format!("{}/{}", custom.group, custom.plural));
            self.kinds.serve(&custom, object::resource_version(definition).parse().unwrap_or(0));
        }
    }

    /// Lets indexes and caches follow one change.
    pub(crate) fn follow(
        &mut self,
        kind: &Kind,
        key: &str,
        before: Option<&Stored>,
        after: Option<(&Value, &[u8])>,
    ) {
        let place = || (Arc::clone(&kind.table), Arc::<str>::from(key));
        let old_owners = before.map(|stored| Head::read(&stored.json).owner_uids()).unwrap_or_default();
        let new_owners = after.map(|(object, _)| owner_uids(object)).unwrap_or_default();
        if old_owners != new_owners {
            for uid in &old_owners {
                if let Some(set) = self.owned.get_mut(uid) {
                    set.remove(&place());
                    if set.is_empty() {
                        self.owned.remove(uid);
                    }
                }
            }
            for uid in new_owners {
                self.owned.entry(uid).or_default().insert(place());
            }
            if after.is_some() {
                let (table, key) = place();
                self.tasks.push_back(Task::Owners(table, key));
            }
        }
        if let Some((object, _)) = after
            && object::is_deleting(object)
            && object::finalizers(object).iter().any(|finalizer| is_propagation(finalizer))
        {
            self.await_dependents(object::uid(object), place());
        }
        if after.is_none() {
            self.tasks.extend(old_owners.into_iter().map(Task::Dependent));
        }
        match &*kind.table {
            MUTATING | VALIDATING => self.reload_webhooks(),
            table if table.starts_with("rbac.authorization.k8s.io/") => self.reload_rules(),
            DEFINITIONS => match after {
                Some((definition, _)) => {
                    self.note_ending(definition);
                    self.serve(definition);
                    self.tasks.push_back(Task::Definition(object::name(definition).to_owned()));
                }
                None => {
                    if let Some(old) = before.map(|stored| render::parse(&stored.json)) {
                        self.ending.remove(object::name(&old));
                        let group = object::text_at(&old, "spec.group").to_owned();
                        let plural = object::text_at(&old, "spec.names.plural").to_owned();
                        self.kinds.withdraw(&group, &plural);
                        self.store.close_table(&format!("{group}/{plural}"));
                        self.tasks.push_back(Task::Definitions(group));
                    }
                }
            },
            "/namespaces" => {
                if let Some((namespace, _)) = after {
                    self.tasks.push_back(Task::Namespace(object::name(namespace).to_owned()));
                }
            }
            "/serviceaccounts" if after.is_none() => {
                let namespace = key.split('/').next().unwrap_or("").to_owned();
                self.tasks.push_back(Task::Namespace(namespace));
            }
            _ => {}
        }
    }
}

pub(crate) fn owner_uids(object: &Value) -> Vec<String> {
    let references = object::meta(object).get("ownerReferences").and_then(Value::as_array);
    references.into_iter().flatten().map(|owner| object::text_at(owner, "uid").to_owned()).collect()
}
