//! The pods of a node of a cluster: processes by their cgroups, pods by the API.

use k8s_openapi::api::core::v1::Pod as PodObject;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::ListParams;
use kube::{Api, Client};

use super::{Pods, cgroup};
use crate::decision::Pod;

/// Pods of a page.
const PAGE: u32 = 500;

/// The pods of a node of a cluster.
#[derive(Clone)]
pub struct Cluster {
    pub client: Client,
    /// Name of the node.
    pub node: String,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("node", &self.node).finish_non_exhaustive()
    }
}

impl Pods for Cluster {
    fn uid(&self, pid: i32) -> Option<String> {
        cgroup::pod_uid(&std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?)
    }

    /// The runtime puts a container into a cgroup below that of its pod, which the kubelet names after the UID.
    fn cgroup(&self, uid: &str, own: &str) -> Option<String> {
        cgroup::is_of(own, uid).then(|| own.to_owned())
    }

    /// Pods cannot be listed by UID: those of the node are, without their specs.
    async fn pod(&self, uid: &str) -> Result<Option<Pod>, kube::Error> {
        let api: Api<PodObject> = Api::all(self.client.clone());
        let own = format!("spec.nodeName={}", self.node);
        let mut parameters = ListParams::default().fields(&own).limit(PAGE);
        loop {
            let page = api.list_metadata(&parameters).await?;
            let found = page.items.into_iter().find(|pod| pod.metadata.uid.as_deref() == Some(uid));
            if let Some(found) = found {
                return Ok(Some(seen(found.metadata)));
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => parameters = parameters.continue_token(&token),
                None => return Ok(None),
            }
        }
    }
}

/// What counts of a pod's metadata.
#[must_use]
pub fn seen(pod: ObjectMeta) -> Pod {
    let owners = pod.owner_references.unwrap_or_default();
    // The target of a migration is controlled by the migration, and owned by the VM as well.
    let is_vm = |owner: &OwnerReference| {
        owner.kind == "VirtualMachine" && owner.api_version == neonvm_api::names::VM_API_VERSION
    };
    let vm = owners.into_iter().find(is_vm);
    Pod {
        namespace: pod.namespace.unwrap_or_default(),
        name: pod.name.unwrap_or_default(),
        vm: vm.map(|owner| (owner.name, owner.uid)),
        deleting: pod.deletion_timestamp.is_some(),
    }
}
