//! Removing what a pod leaves behind.

use std::sync::Arc;
use std::time::Duration;

use super::state::{Task, Worker};
use crate::files;
use crate::naming;
use crate::node::Node;
use crate::pod::PodDirectory;
use neonvm_core_kubelet::Event;

/// First and longest pause after a failure.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// Removes everything but status and logs; tries until it works.
pub(super) fn start(worker: &mut Worker) {
    let (node, uid) = (Arc::clone(&worker.node), worker.handle.uid.clone());
    let (directory, events) = (worker.handle.directory.clone(), worker.events.clone());
    let task = tokio::spawn(async move {
        let mut pause = PAUSES.0;
        while let Err(error) = clean(&node, &uid, &directory).await {
            tracing::warn!(%error, uid, "what a pod leaves behind cannot be removed yet");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
        let _ = events.send(Event::Cleaned).await;
    });
    worker.tasks.push(Task(task));
}

async fn clean(node: &Arc<Node>, uid: &str, directory: &PodDirectory) -> std::io::Result<()> {
    if let Some(hierarchy) = node.hierarchy.clone() {
        let group = naming::pod_cgroup(&node.config.cluster, &node.config.name, uid);
        // First of all: what still runs would hold on to everything else.
        tokio::task::spawn_blocking(move || hierarchy.remove(&group)).await??;
    }
    node.network.detach(uid).await?;
    let (node, uid, directory) = (Arc::clone(node), uid.to_owned(), directory.clone());
    tokio::task::spawn_blocking(move || {
        for part in ["root", "volumes", "etc", "exec"] {
            files::remove(&directory.path().join(part))?;
        }
        node.images.release(&node.user(&uid));
        Ok(())
    })
    .await?
}

/// Removes what is left of a pod that is no more.
pub(super) fn forget(worker: &Worker) {
    if let Err(error) = files::remove(worker.handle.directory.path()) {
        tracing::warn!(%error, uid = worker.handle.uid, "the directory of a pod cannot be removed");
    }
    let mut pods = worker.node.pods.lock();
    if pods.get(&worker.handle.uid).is_some_and(|handle| Arc::ptr_eq(handle, &worker.handle)) {
        pods.remove(&worker.handle.uid);
    }
}
