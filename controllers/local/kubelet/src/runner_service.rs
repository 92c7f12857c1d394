//! The node service for the runners of this node: the code that clusters run in a pod of each node, with pods that are found by their
//! network namespaces.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use neonvm_api::Policy;
use neonvm_kit::private;
use neonvm_node::decision::Pod;
use neonvm_node::service::{self, Cgroups, Paths, Pods, Service};
use neonvm_types::node_protocol::SOCKET;
use tokio::net::UnixListener;

use crate::naming;
use crate::network::NodeNetwork;
use crate::node::Node;

/// Directory of the socket, below that of the node.
const DIRECTORY: &str = "node-service";

/// The socket of a node with this directory.
pub(crate) fn socket(data: &Path) -> PathBuf {
    data.join(DIRECTORY).join(SOCKET)
}

/// Listens, in a directory that only root enters, if pods have network namespaces; without them QEMU's own network needs nothing of the node.
pub(crate) fn listen(data: &Path, network: &NodeNetwork) -> std::io::Result<Option<UnixListener>> {
    if !network.has_namespaces() {
        return Ok(None);
    }
    let directory = data.join(DIRECTORY);
    let listener = service::listen(&directory)?;
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(private::DIRECTORY))?;
    Ok(Some(listener))
}

/// Serves the runners of the node until the socket fails.
pub(crate) async fn serve(node: &Arc<Node>, listener: Option<UnixListener>) {
    let Some(listener) = listener else { return std::future::pending().await };
    let service = Service {
        pods: OwnPods(Arc::clone(node)),
        client: node.client.clone(),
        policy: Policy::default(),
        // Its processes are those of the host: a runner names any of them.
        paths: Paths { cgroups: Cgroups { as_caller: true, ..Cgroups::default() }, ..Paths::default() },
    };
    let error = service::serve(Arc::new(service), listener).await;
    tracing::error!(%error, "the socket for runners failed");
}

/// The pods of this node.
struct OwnPods(Arc<Node>);

impl Pods for OwnPods {
    fn uid(&self, pid: i32) -> Option<String> {
        let number = |path: PathBuf| std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
        let own = number(format!("/proc/{pid}/ns/net").into())?;
        let uids: Vec<String> = self.0.pods.lock().keys().cloned().collect();
        uids.into_iter().find(|uid| number(self.0.network.namespace(uid)) == Some(own))
    }

    fn cgroup(&self, uid: &str, _own: &str) -> Option<String> {
        self.0.hierarchy.as_ref()?;
        Some(naming::pod_cgroup(&self.0.config.cluster, &self.0.config.name, uid))
    }

    async fn pod(&self, uid: &str) -> Result<Option<Pod>, kube::Error> {
        let pod = self.0.pods.lock().get(uid).map(|handle| handle.pod.borrow().metadata.clone());
        Ok(pod.map(service::seen))
    }
}
