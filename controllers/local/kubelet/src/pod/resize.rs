//! Holding a pod to its size.

use std::io;
use std::sync::Arc;

use super::state::{Task, Worker};
use crate::naming;
use crate::node::Node;
use neonvm_core_kubelet::Event;
use neonvm_core_kubelet::size::Limits;

/// Sets the cgroup of the pod to what is allocated; answers with an event. One at a time: what is allocated meanwhile follows.
pub(super) fn start(worker: &mut Worker) {
    if std::mem::replace(&mut worker.is_resizing, true) {
        return;
    }
    let (node, uid, events) = (Arc::clone(&worker.node), worker.handle.uid.clone(), worker.events.clone());
    let resources = worker.machine.size.allocated.clone();
    let task = tokio::spawn(async move {
        let done = set(&node, &uid, resources.limits()).await;
        if let Err(error) = &done {
            tracing::warn!(%error, uid, "the cgroup of a pod cannot be set to its size");
        }
        let fault = done.err().map(|error| error.to_string());
        let _ = events.send(Event::Sized { resources, fault }).await;
    });
    worker.tasks.push(Task(task));
}

async fn set(node: &Node, uid: &str, limits: Limits) -> io::Result<()> {
    // Without cgroups nothing holds a pod to its size; the node logged that when it started.
    let Some(hierarchy) = node.hierarchy.clone() else { return Ok(()) };
    let group = naming::pod_cgroup(&node.config.cluster, &node.config.name, uid);
    tokio::task::spawn_blocking(move || hierarchy.set(&group, &limits)).await?
}
