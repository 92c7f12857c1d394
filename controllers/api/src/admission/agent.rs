//! What an agent may write: the size of the VMs of its own node, and nothing else.
//!
//! All agents share one service account, so access rules cannot separate them. The API server verifies from which node a token comes
//! and adds the node's name to the request's user; this rule compares it with the node of the VM, as `NodeRestriction` does for kubelets.

use serde_json::{Map, Value};

use crate::names::{AGENT_ACCOUNT, NODE_CLAIM};
use crate::{apply_defaults, normalise};

/// Fields that agents own, as JSON pointers.
pub const OWNED: [&str; 3] = ["/spec/guest/cpus/use", "/spec/guest/memorySlots/use", "/spec/targetRevision"];
/// Metadata that the API server maintains.
const MAINTAINED: [&str; 3] = ["generation", "managedFields", "resourceVersion"];
/// Most fields that a refusal names.
const NAMED: usize = 4;
const KIND: &str = "VirtualMachine";

/// The authenticated user of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requester {
    /// User name.
    pub username: String,
    /// Names of nodes in the user's extra values: where the pod runs that the token is bound to.
    pub nodes: Vec<String>,
}

impl Requester {
    /// A user, with its extra values as pairs of key and values.
    pub fn new<'a>(username: &str, extra: impl IntoIterator<Item = (&'a str, &'a [String])>) -> Self {
        let claims = extra.into_iter().filter(|(key, _)| *key == NODE_CLAIM);
        Self { username: username.to_owned(), nodes: claims.flat_map(|(_, nodes)| nodes.to_vec()).collect() }
    }

    /// The user of an admission review's `userInfo`. Values of another type are left out.
    #[must_use]
    pub fn of_review(user: &Value) -> Self {
        let username = user.get("username").and_then(Value::as_str).unwrap_or_default().to_owned();
        let claim = user.get("extra").and_then(|extra| extra.get(NODE_CLAIM)).and_then(Value::as_array);
        let nodes = claim.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
        Self { username, nodes: nodes.collect() }
    }

    /// Whether it is the service account of agents. `namespace` is that of the services.
    #[must_use]
    pub fn is_agent(&self, namespace: &str) -> bool {
        let account = self.username.strip_prefix("system:serviceaccount:");
        account.and_then(|account| account.split_once(':')) == Some((namespace, AGENT_ACCOUNT))
    }
}

/// Why an agent may not write an object; none for every other user and for objects of other kinds. `old` is the stored object of
/// an update. Both are compared in canonical form, so another spelling of a value is no change.
#[must_use]
pub fn refused(
    namespace: &str,
    requester: &Requester,
    kind: &str,
    new: &Value,
    old: Option<&Value>,
) -> Option<String> {
    if kind != KIND || !requester.is_agent(namespace) {
        return None;
    }
    let Some(old) = old else { return Some("agents may not create VMs".to_owned()) };
    let [node] = requester.nodes.as_slice() else {
        return Some(format!(
            "the token of the agent does not name one node ({NODE_CLAIM}); it has to be bound to a pod that runs on a node, \
             which Kubernetes adds to tokens from 1.30 on"
        ));
    };
    let own = old.pointer("/status/node").and_then(Value::as_str).unwrap_or_default();
    if own.is_empty() {
        return Some(format!(
            "the VM is on no node; the agent of {node} may change VMs of its own node only"
        ));
    }
    if own != node {
        return Some(format!(
            "the VM is on node {own}; the agent of {node} may change VMs of its own node only"
        ));
    }
    let mut changed = Vec::new();
    differences("", &canonical(old), &canonical(new), &mut changed);
    if changed.is_empty() {
        return None;
    }
    let more = changed.len().saturating_sub(NAMED);
    changed.truncate(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Some(format!("agents may change the size of a VM only, not {}{more}", changed.join(", ")))
}

/// An object as it is compared: normalised, with defaults, without what agents own and the API server maintains.
fn canonical(object: &Value) -> Value {
    let mut object = object.clone();
    // A value that cannot be normalised stays as it is, and then differs or does not.
    let _ = normalise(KIND, &mut object);
    apply_defaults(KIND, &mut object);
    for owned in OWNED {
        let Some((parent, key)) = owned.rsplit_once('/') else { continue };
        if let Some(parent) = object.pointer_mut(parent).and_then(Value::as_object_mut) {
            parent.remove(key);
        }
    }
    if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        meta.retain(|key, _| !MAINTAINED.contains(&key.as_str()));
    }
    object
}

/// Paths at which two values differ; below objects it descends, lists are compared whole.
fn differences(path: &str, old: &Value, new: &Value, found: &mut Vec<String>) {
    if old == new {
        return;
    }
    let empty = Map::new();
    let (old, new) = match (old, new) {
        (Value::Object(old), Value::Object(new)) => (old, new),
        // A missing object and an empty one are equal for every reader.
        (Value::Object(old), Value::Null) => (old, &empty),
        (Value::Null, Value::Object(new)) => (&empty, new),
        _ => return found.push(path.to_owned()),
    };
    let null = Value::Null;
    let added = new.keys().filter(|key| !old.contains_key(*key));
    for key in old.keys().chain(added) {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        differences(&path, old.get(key).unwrap_or(&null), new.get(key).unwrap_or(&null), found);
    }
}

#[cfg(test)]
mod tests;
