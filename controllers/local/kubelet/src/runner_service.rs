//! The node service for the runners of this node: the code that clusters run in a pod of each node, with pods that are found by their
//! network namespaces, or without these by their cgroups.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use neonvm_api::Policy;
use neonvm_kit::private;
use neonvm_node::decision::Pod;
use neonvm_node::service::{self, Cgroups, Paths, Pods, Service};
use tokio::net::UnixListener;

use crate::node::Node;
use crate::{naming, sys};

/// Directory of the socket, below that of the node.
const DIRECTORY: &str = "node-service";

/// The directory of the socket of a node with this directory; every user may enter it.
pub(crate) fn directory(data: &Path) -> PathBuf {
    data.join(DIRECTORY).join("shared")
}

/// Listens, in a directory that pods have in their roots, below one that only root enters. A node that makes no roots has no right to give.
pub(crate) fn listen(data: &Path) -> std::io::Result<Option<UnixListener>> {
    if !sys::can_make_roots() {
        return Ok(None);
    }
    crate::files::directory(&data.join(DIRECTORY), private::DIRECTORY)?;
    service::listen(&directory(data)).map(Some)
}

/// Serves the runners of the node until the socket fails.
pub(crate) async fn serve(node: &Arc<Node>, listener: Option<UnixListener>) {
    let Some(listener) = listener else { return std::future::pending().await };
    let service = Service {
        pods: OwnPods(Arc::clone(node)),
        client: node.client.clone(),
        policy: Policy::default(),
        paths: Paths {
            // A pod without a network of its own gets no device: it would be one of the host.
            own_namespace: Some("/proc/self/ns/net".into()),
            // Runners of earlier versions are among the processes of the host, and name any of them.
            cgroups: Cgroups { as_caller: true, ..Cgroups::default() },
            ..Paths::default()
        },
    };
    let error = service::serve(Arc::new(service), listener).await;
    tracing::error!(%error, "the socket for runners failed");
}

/// The pods of this node.
struct OwnPods(Arc<Node>);

impl Pods for OwnPods {
    fn uid(&self, pid: i32) -> Option<String> {
        let uids: Vec<String> = self.0.pods.lock().keys().cloned().collect();
        if !self.0.network.has_namespaces() {
            let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
            let config = &self.0.config;
            let group = |uid: &String| naming::pod_cgroup(&config.cluster, &config.name, uid);
            return uids.into_iter().find(|uid| is_in(&text, &group(uid)));
        }
        let number = |path: PathBuf| std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
        let own = number(format!("/proc/{pid}/ns/net").into())?;
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

/// Whether a line of the text of `/proc/PID/cgroup` has this cgroup, or one below it. Processes of pods make none.
fn is_in(text: &str, group: &str) -> bool {
    text.lines().any(|line| format!("{line}/").contains(&format!("/{group}/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_found_by_its_cgroup() {
        let text = "12:pids:/user.slice\n4:cpu:/neonvm-ab/n1/the-uid\n";
        assert!(
            is_in(text, "neonvm-ab/n1/the-uid")
                && is_in("0::/x/neonvm-ab/n1/the-uid/vcpus", "neonvm-ab/n1/the-uid")
        );
        assert!(
            !is_in(text, "neonvm-ab/n1/the-ui") && !is_in(text, "neonvm-ab/n2/the-uid") && !is_in("", "a")
        );
    }
}
