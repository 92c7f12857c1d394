//! The state of a pod's task, and the tasks that it has begun.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::PodStatus;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::Handle;
use super::report::Report;
use crate::node::Node;
use neonvm_core_kubelet::{Event, Machine, ProbeKind};

/// A task that ends with its owner.
#[derive(Debug)]
pub(super) struct Task(pub(super) JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(super) struct Worker {
    pub(super) node: Arc<Node>,
    pub(super) handle: Arc<Handle>,
    pub(super) machine: Machine,
    pub(super) ip: watch::Sender<String>,
    pub(super) events: mpsc::Sender<Event>,
    /// True once nothing is to be started any more.
    pub(super) ending: watch::Sender<bool>,
    pub(super) preparation: Option<Task>,
    /// Waiting for processes, starting, cleaning.
    pub(super) tasks: Vec<Task>,
    pub(super) probes: BTreeMap<(String, ProbeKind), Task>,
    pub(super) reports: watch::Sender<Report>,
    /// The status that was reported last.
    pub(super) shown: PodStatus,
    /// The object was observed in this run of the node: before, its content is unknown.
    pub(super) is_seen: bool,
    pub(super) is_forgotten: bool,
    /// The cgroup is being set.
    pub(super) is_resizing: bool,
}
