//! What the scheduler knows: nodes, pods, and bindings it made that the watch has not shown yet.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Pod};
use neonvm_core_placement::{Choice, choose};

/// Namespace and name.
pub(crate) type Key = (String, String);

/// All nodes and pods.
#[derive(Debug, Default)]
pub(crate) struct World {
    nodes: BTreeMap<String, Node>,
    pods: BTreeMap<Key, Pod>,
    /// What each waiting pod was told last.
    told: BTreeMap<Key, String>,
}

/// What to do for a pod.
#[derive(Debug, PartialEq)]
pub(crate) enum Deed {
    /// Bind it to a node.
    Bind { key: Key, uid: String, node: String },
    /// Tell why it waits.
    Tell { key: Key, uid: String, why: String },
}

pub(crate) fn key(pod: &Pod) -> Key {
    (pod.metadata.namespace.clone().unwrap_or_default(), pod.metadata.name.clone().unwrap_or_default())
}

fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

fn waits(pod: &Pod) -> bool {
    let gated =
        pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref()).is_some_and(|all| !all.is_empty());
    node_of(pod).is_none() && pod.metadata.deletion_timestamp.is_none() && !has_ended(pod) && !gated
}

/// What of a node the choice depends on. Its heartbeat is not.
fn outline(node: &Node) -> impl PartialEq + use<> {
    let status = node.status.clone().unwrap_or_default();
    let conditions: Vec<(String, String)> =
        status.conditions.into_iter().flatten().map(|c| (c.type_, c.status)).collect();
    (node.metadata.labels.clone(), node.spec.clone(), status.allocatable, status.capacity, conditions)
}

impl World {
    /// A node is new or changed. Whether a choice can turn out differently.
    pub(crate) fn node(&mut self, node: Node) -> bool {
        let name = node.metadata.name.clone().unwrap_or_default();
        let new = outline(&node);
        self.nodes.insert(name, node).is_none_or(|old| outline(&old) != new)
    }

    pub(crate) fn node_gone(&mut self, node: &Node) {
        self.nodes.remove(node.metadata.name.as_deref().unwrap_or(""));
    }

    /// A pod is new or changed. Whether a choice can turn out differently.
    pub(crate) fn pod(&mut self, pod: Pod) -> bool {
        let key = key(&pod);
        if !waits(&pod) {
            self.told.remove(&key);
        }
        let outline =
            |pod: &Pod| (waits(pod), has_ended(pod), pod.spec.clone(), pod.metadata.annotations.clone());
        let new = outline(&pod);
        self.pods.insert(key, pod).is_none_or(|old| outline(&old) != new)
    }

    pub(crate) fn pod_gone(&mut self, pod: &Pod) {
        let key = key(pod);
        self.pods.remove(&key);
        self.told.remove(&key);
    }

    /// Forgets all pods that are not listed: a watch began anew.
    pub(crate) fn keep_pods(&mut self, listed: &std::collections::BTreeSet<Key>) {
        self.pods.retain(|key, _| listed.contains(key));
        self.told.retain(|key, _| listed.contains(key));
    }

    /// The same for nodes.
    pub(crate) fn keep_nodes(&mut self, listed: &std::collections::BTreeSet<String>) {
        self.nodes.retain(|name, _| listed.contains(name));
    }

    /// The next thing to do, if there is one. A pod to bind is taken for bound from now on.
    pub(crate) fn next(&mut self) -> Option<Deed> {
        let nodes: Vec<&Node> = self.nodes.values().collect();
        let bound: Vec<&Pod> =
            self.pods.values().filter(|pod| node_of(pod).is_some() && !has_ended(pod)).collect();
        let mut waiting: Vec<(&Key, &Pod)> = self.pods.iter().filter(|(_, pod)| waits(pod)).collect();
        let priority = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
        let age = |pod: &Pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        waiting.sort_by_key(|(_, pod)| (std::cmp::Reverse(priority(pod)), age(pod)));
        let mut deed = None;
        for (key, pod) in waiting {
            let uid = pod.metadata.uid.clone().unwrap_or_default();
            match choose(pod, &nodes, &bound) {
                Choice::Node(node) => {
                    deed = Some(Deed::Bind { key: key.clone(), uid, node });
                    break;
                }
                nowhere @ Choice::Nowhere(_) => {
                    let why = nowhere.to_string();
                    if self.told.get(key) != Some(&why) {
                        deed = Some(Deed::Tell { key: key.clone(), uid, why });
                        break;
                    }
                }
            }
        }
        match &deed {
            Some(Deed::Bind { key, node, .. }) => {
                if let Some(spec) = self.pods.get_mut(key).and_then(|pod| pod.spec.as_mut()) {
                    spec.node_name = Some(node.clone());
                }
            }
            Some(Deed::Tell { key, why, .. }) => {
                self.told.insert(key.clone(), why.clone());
            }
            None => {}
        }
        deed
    }

    /// A binding was refused: the pod waits again, unless the watch has shown something newer.
    pub(crate) fn unbind(&mut self, key: &Key, uid: &str) {
        if let Some(pod) = self.pods.get_mut(key)
            && pod.metadata.uid.as_deref() == Some(uid)
            && let Some(spec) = pod.spec.as_mut()
        {
            spec.node_name = None;
        }
    }

    /// Telling failed: it is to be told again.
    pub(crate) fn untell(&mut self, key: &Key) {
        self.told.remove(key);
    }
}
