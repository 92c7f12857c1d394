//! What was seen of the cluster, reduced to what decisions depend on.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use neonvm_types::{Bytes, NamespacedName, Resources};

use super::account::undiscounted;
use super::{Pair, Settings};
use crate::Amounts;

/// Observed state of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeSeen {
    /// Name of the node.
    pub name: String,
    /// What it offers to pods.
    pub total: Pair<u64>,
    /// What else it offers, such as `pods` and devices. Nothing is checked if this is `None`.
    pub other: Option<Amounts>,
    /// Why no pod may be placed there now: cordoned, not ready.
    pub closed: Option<String>,
    pub labels: BTreeMap<String, String>,
    /// Name, labels, taints and conditions, for rules about placement. Without it there are none.
    pub object: Option<Arc<Node>>,
}

/// Observed state of a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodSeen {
    pub pod: NamespacedName,
    /// Its uid. A pod of the same name with another uid is another pod.
    pub uid: String,
    /// When it was made, in seconds since any fixed time.
    pub created: i64,
    pub node: Option<String>,
    /// The only node that it can have, while it waits: that of a pod of a DaemonSet. Its room counts there, so that VMs make room for
    /// it by not growing and by leaving. Never that of a VM's pod.
    pub expects: Option<String>,
    /// Whether it has ended: it takes nothing any more.
    pub ended: bool,
    /// Whether it is being deleted: a VM that migrated has left it.
    pub deleting: bool,
    /// The amounts that it certainly uses: its requests with init containers and overhead; for a VM the size in its
    /// spec.
    pub usage: Pair<u64>,
    /// What the pod of a VM requests in all: it counts for no less. Zero for others.
    pub requests: Pair<u64>,
    /// What the pod of a VM takes beside its VM. Zero for others.
    pub overhead: Pair<u64>,
    /// What else it takes, such as `pods` and devices.
    pub other: Amounts,
    /// If there is a VM in it.
    pub vm: Option<VmSeen>,
    /// Whether it waits to be scheduled.
    pub waits: bool,
    /// Whether it has not run yet: no agent was permitted anything for it.
    pub starting: bool,
    /// Priority: higher ones are placed first.
    pub priority: i32,
    /// Name, labels and rules about placement, ports. Without it there are none.
    pub object: Option<Arc<Pod>>,
    /// What is wrong with its labels and annotations.
    pub problems: Vec<String>,
}

/// A VM, as its pod shows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VmSeen {
    /// Name of the pod.
    pub name: String,
    /// Its uid, if the pod names it as owner.
    pub uid: Option<String>,
    /// Whether it is scaled.
    pub scaled: bool,
    /// Its upper bound. Unknown if the annotations are wrong.
    pub max: Option<Resources>,
    /// Memory of one slot. Unknown if the annotations are wrong: its agent is refused.
    pub slot_size: Option<Bytes>,
    /// Factors by which it is discounted, in thousandths; never zero.
    pub overcommit: Pair<u64>,
    /// Whether the scheduler may migrate it.
    pub migratable: bool,
    /// Whether it is to be migrated repeatedly.
    pub always_migrate: bool,
    /// The migration the pod takes part in.
    pub migration: Option<(MigrationRole, String)>,
    /// The compute unit that is noted.
    pub unit: Option<Resources>,
    pub requested: Option<Resources>,
    /// The permit that is noted. It may be of any age.
    pub approved: Option<Resources>,
}

/// What a pod is in a migration; with it goes the migration's uid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub enum MigrationRole {
    /// The VM leaves it.
    Source,
    /// The VM comes to it.
    Target,
}

/// Observed state of a migration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MigrationSeen {
    pub migration: NamespacedName,
    pub uid: String,
    pub vm: String,
    /// Whether it was made by a scheduler.
    pub ours: bool,
    /// Whether nothing is copied yet: it waits, or its target is prepared.
    pub pending: bool,
    /// Its target has a node: the VM keeps its size.
    pub placed: bool,
    /// Whether it has ended, either way.
    pub ended: bool,
    /// Whether it is being deleted already.
    pub deleting: bool,
}

impl MigrationSeen {
    /// Nothing is copied, and the target has no node yet.
    pub(crate) fn waits_for_node(&self) -> bool {
        self.pending && !self.placed
    }
}

impl PodSeen {
    /// The node on which it counts.
    pub(crate) fn place(&self) -> Option<&String> {
        self.node.as_ref().or(self.expects.as_ref())
    }

    /// UID of the migration by which the VM leaves this pod, if one has it.
    pub(crate) fn leaves_by(&self) -> Option<&str> {
        match self.vm.as_ref()?.migration.as_ref()? {
            (MigrationRole::Source, uid) => Some(uid),
            (MigrationRole::Target, _) => None,
        }
    }

    /// The largest size of a VM for which the requests of its pod suffice.
    fn guest(&self, vm: &VmSeen) -> Pair<u64> {
        self.requests.less(self.overhead).map(u128::from).with(vm.overcommit, undiscounted)
    }

    /// What its VM may have by the permit that its agent reports: no more than its pod requests, if the cluster resizes pods.
    pub(crate) fn believed(&self, last_permit: Pair<u64>, settings: &Settings) -> Pair<u64> {
        match &self.vm {
            Some(vm) if settings.pods_are_resized => last_permit.min(self.guest(vm)),
            _ => last_permit,
        }
    }

    /// Without what its annotations claim beyond what can be true: if the cluster resizes pods, a VM has at most the size that its pod
    /// requests.
    #[must_use]
    pub(crate) fn bounded(mut self, settings: &Settings) -> Self {
        let Some(vm) = &self.vm else { return self };
        if settings.pods_are_resized {
            let guest = self.guest(vm);
            self.overhead = self.overhead.min(self.requests);
            self.usage = self.usage.min(guest);
        }
        self
    }
}
