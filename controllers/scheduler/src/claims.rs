//! Where claims of persistent volumes let a pod be, for clusters without another scheduler: a claim that has a volume on one node names
//! that node, and its pods are placed there.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::{Api, Client};
use neonvm_api::names::annotation::SELECTED_NODE;
use neonvm_core_scheduling::HOSTNAME_LABEL;
use neonvm_core_scheduling::permits::PodSeen;

/// The claims of a pod that name a node, each with the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pinned(Vec<(String, String)>);

/// Names of the claims that a pod uses.
fn of(pod: &Pod) -> Vec<String> {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    let sources = volumes.iter().filter_map(|volume| volume.persistent_volume_claim.as_ref());
    sources.map(|source| source.claim_name.clone()).collect()
}

/// Reads the claims of a waiting pod.
///
/// # Errors
/// Why it cannot be placed yet: a claim does not exist, or the API server does not answer.
pub(crate) async fn read(client: &Client, pod: &PodSeen, within: Duration) -> Result<Pinned, String> {
    let mut pinned = Pinned::default();
    for name in pod.object.as_deref().map(of).unwrap_or_default() {
        let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &pod.pod.namespace);
        let found = match tokio::time::timeout(within, api.get_metadata_opt(&name)).await {
            Ok(Ok(found)) => found.ok_or_else(|| format!("claim {name} does not exist"))?,
            Ok(Err(error)) => return Err(format!("claim {name} cannot be read: {error}")),
            Err(_) => return Err(format!("claim {name} cannot be read: the API server does not answer")),
        };
        let node = found.metadata.annotations.and_then(|mut all| all.remove(SELECTED_NODE));
        pinned.0.extend(node.map(|node| (name, node)));
    }
    Ok(pinned)
}

impl Pinned {
    /// The pod with the nodes of its claims as a rule of its own.
    pub(crate) fn put(&self, mut pod: PodSeen) -> PodSeen {
        if let (Some((_, node)), Some(object)) = (self.0.first(), &mut pod.object) {
            let spec = Arc::make_mut(object).spec.get_or_insert_default();
            spec.node_selector.get_or_insert_default().insert(HOSTNAME_LABEL.to_owned(), node.clone());
        }
        pod
    }

    /// Why there are few nodes for the pod; empty if its claims allow all.
    pub(crate) fn explanation(&self) -> String {
        let parts =
            self.0.iter().map(|(claim, node)| format!("; claim {claim} has its volume on node {node}"));
        parts.collect()
    }
}

#[cfg(test)]
mod tests {
    use neonvm_core_scheduling::permits::Settings;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_goes_where_the_volume_of_its_claim_is() {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": {"containers": [], "volumes": [
            {"name": "a", "persistentVolumeClaim": {"claimName": "data-pg"}}, {"name": "b", "emptyDir": {}}]}}))
        .unwrap();
        let seen = PodSeen::from_pod(&pod, &Settings::default());
        assert_eq!(seen.object.as_deref().map(of), Some(vec!["data-pg".to_owned()]));
        let free = Pinned::default();
        assert_eq!((free.put(seen.clone()).object, free.explanation().as_str()), (seen.object.clone(), ""));
        let pinned = Pinned(vec![("data-pg".into(), "node-2".into())]);
        let placed = pinned.put(seen).object.unwrap();
        assert_eq!(placed.spec.as_ref().unwrap().node_selector.as_ref().unwrap()[HOSTNAME_LABEL], "node-2");
        assert_eq!(pinned.explanation(), "; claim data-pg has its volume on node node-2");
    }
}
