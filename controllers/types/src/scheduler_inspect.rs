//! The state that the scheduler reports: `GET /v1/inspect` and `POST /v1/what-if`.
//!
//! Plain data, read by the CLI and compared by tests. CPU is in thousandths, memory in bytes, wherever a bare number stands.
//! Amounts of a node are *discounted*: what a pod reserves divided by its overcommit factor, rounded up.

use serde::{Deserialize, Serialize};

use crate::{NamespacedName, Resources};

/// The scheduler's state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Inspect {
    /// Replica that sent this view: the identity in the lease.
    pub identity: String,
    /// Version of the program.
    pub version: String,
    /// Whether it leads; a standby observes nodes and pods, and permits nothing.
    pub leading: bool,
    /// Whether nodes and pods were listed whole; nothing is permitted before.
    pub ready: bool,
    /// Milliseconds since it last took something in; absent before the first time.
    pub last_event_ms: Option<u64>,
    /// What it follows.
    pub settings: SettingsView,
    /// Its nodes, by name.
    pub nodes: Vec<NodeView>,
    /// Pods that wait for a node, by name.
    pub waiting: Vec<WaitingPod>,
    /// Pods bound to a node that has not been observed, by name: their agents get no permits.
    pub homeless: Vec<NamespacedName>,
    /// Counts since the start.
    pub counters: Counters,
}

/// Settings that decisions depend on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SettingsView {
    /// Share of a node's CPU above which VMs are to leave; above 0, at most 1.
    pub cpu_watermark: f64,
    /// The same for memory.
    pub mem_watermark: f64,
    /// Whether migrations are started, not only planned.
    pub do_migration: bool,
    /// Most VMs that leave a node at the same time.
    pub migrations_per_node: u32,
    /// Compute unit of agents that do not name one.
    pub compute_unit: Resources,
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Counters {
    /// Requests of agents that were answered with a permit.
    pub permits: u64,
    /// Those of them that were given less than they requested.
    pub denials: u64,
    /// Requests that were refused.
    pub refusals: u64,
    /// Pods that were given room.
    pub reservations: u64,
    /// Pods that were refused room at the moment of binding.
    pub reservations_denied: u64,
    /// Migrations requested.
    pub migrations: u64,
    /// Annotations that still have to be written.
    pub writes_pending: u64,
    /// Annotations that were abandoned after too many tries.
    pub writes_lost: u64,
}

/// Accounting of one node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeView {
    /// Name of the node.
    pub name: String,
    /// Why no pod may be placed there; absent if pods may.
    pub closed: Option<String>,
    /// CPU, in thousandths.
    pub cpu: ResourceView,
    /// Memory, in bytes.
    pub mem: ResourceView,
    /// Whether a VM should leave, by the sum of pressures.
    pub too_much_pressure: bool,
    /// VMs that are leaving: being migrated, or about to be.
    pub leaving: Vec<NamespacedName>,
    /// Migrations that would be created next, in order; empty if none is needed or none is possible.
    pub next: Vec<PlannedMigration>,
    /// Why no VM is migrated although the node is above its watermark, or another remark.
    pub note: Option<String>,
    /// Its pods, by name.
    pub pods: Vec<PodView>,
}

/// One resource of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceView {
    /// What the node offers to pods (`status.allocatable`).
    pub total: u64,
    /// Above this VMs are to leave: `total` times the watermark.
    pub watermark: u64,
    /// Permitted to pods, with buffers.
    pub reserved: u64,
    /// The part of `reserved` that is there only because an agent has sent no report since the start.
    pub buffer: u64,
    /// Requested and not granted.
    pub capacity_pressure: u64,
    /// What will be free once those that are leaving have left: their share of `reserved` and `capacity_pressure`.
    pub pressure_accounted_for: u64,
    /// The part of `reserved` of VMs that are leaving.
    pub migrating: u64,
    /// `reserved` without the discount for overcommit.
    pub committed: u64,
    /// The part of `reserved` of pods that are no VMs.
    pub ordinary: u64,
    /// Taken by pods of ignored namespaces; not in `reserved`.
    pub ignored: u64,
}

impl ResourceView {
    /// How far `reserved` is above the watermark: the logical pressure; 0 if it is not.
    #[must_use]
    pub const fn logical_pressure(&self) -> u64 {
        self.reserved.saturating_sub(self.watermark)
    }
}

/// A pod on a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodView {
    /// Namespace and name.
    pub pod: NamespacedName,
    /// The VM in it, if it is a VM's.
    pub vm: Option<String>,
    /// Whether the VM is scaled: its agent may request permits.
    pub scaled: bool,
    /// Reserved for it, with its buffer; not discounted.
    pub reserved: Resources,
    /// The part of `reserved` that goes with its agent's first request.
    pub buffer: Resources,
    /// The last request of its agent; absent before the first.
    pub requested: Option<Resources>,
    /// The compute unit of that request.
    pub compute_unit: Option<Resources>,
    /// What its pod shows it to use: container requests, or the annotation `vm.neon.tech/usage`.
    pub usage: Resources,
    /// Requested and not granted; not discounted.
    pub capacity_pressure: Resources,
    /// Upper bound of the VM, if it has been read.
    pub max: Option<Resources>,
    /// Overcommit factor of CPU in thousandths.
    pub cpu_overcommit: u64,
    /// Overcommit factor of memory in thousandths.
    pub mem_overcommit: u64,
    /// The last load average of one minute its agent reported.
    pub load: Option<f32>,
    /// Whether the scheduler may migrate it.
    pub migratable: bool,
    /// Whether it is the source of a migration.
    pub migrating: bool,
    /// Whether room is kept for it that the cluster does not show yet.
    pub tentative: bool,
    /// Milliseconds since its agent's last request.
    pub last_request_ms: Option<u64>,
    /// What is wrong with its labels and annotations; what stands there is replaced by a default or refused.
    pub problems: Vec<String>,
}

/// A migration that the scheduler would create.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlannedMigration {
    /// The pod that would leave.
    pub pod: NamespacedName,
    /// The VM in it.
    pub vm: String,
    /// Where it would go; absent if it can go nowhere.
    pub target: Option<String>,
    /// Why this one, and why there or why nowhere.
    pub why: String,
}

/// A pod that waits for a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WaitingPod {
    /// Namespace and name.
    pub pod: NamespacedName,
    /// What it needs.
    pub needs: Resources,
    /// Why it waits.
    pub why: String,
}

/// A question: what would happen?
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct WhatIf {
    /// Namespace of the VM.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name of the VM (or of its pod). Needed with `size`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub vm: String,
    /// Its agent requests this size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<Resources>,
    /// The watermark of both resources is this; above 0, at most 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watermark: Option<f64>,
    /// The VM is migrated: which node would be its target? Not together with the others.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub leave: bool,
    /// Only there; empty: anywhere. With `leave`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<String>,
    /// Not there. With `leave`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub avoid: Vec<String>,
}

/// A node that was considered as the target of a migration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TargetView {
    /// Name of the node.
    pub node: String,
    /// Whether the VM fits there.
    pub fits: bool,
    /// Whether it would go there.
    pub chosen: bool,
    /// Why not, or what the node would have reserved.
    pub why: String,
}

/// The answer: nothing was changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WhatIfAnswer {
    /// In words: granted, partly granted or refused, and why.
    pub why: String,
    /// For a size: what would be permitted.
    pub permit: Option<Resources>,
    /// For a size: the most that the node can give this VM now, in whole compute units.
    pub most: Option<Resources>,
    /// For a size: that in compute units; absent if CPU and memory differ.
    pub most_units: Option<u64>,
    /// For a size: what the VM's node would have reserved if all of it were granted, CPU in thousandths, memory in bytes.
    pub sum: Option<(u64, u64)>,
    /// The nodes in question as they would be: the VM's, or with a watermark alone all.
    pub nodes: Vec<NodeView>,
    /// For a migration: every node that was considered, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<TargetView>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_more_is_ignored() {
        let inspect = Inspect {
            nodes: vec![NodeView { name: "n1".into(), ..NodeView::default() }],
            last_event_ms: Some(3),
            ..Inspect::default()
        };
        let text = serde_json::to_string(&inspect).unwrap();
        assert_eq!(serde_json::from_str::<Inspect>(&text).unwrap(), inspect);
        let newer = r#"{"identity":"a","future":1,"nodes":[{"name":"n"}]}"#;
        assert_eq!(serde_json::from_str::<Inspect>(newer).unwrap().nodes[0].name, "n");
    }

    #[test]
    fn questions_name_what_they_do_not_know() {
        let ask = r#"{"namespace":"d","vm":"v","size":{"vCPUs":1,"mem":"4Gi"}}"#;
        let question: WhatIf = serde_json::from_str(ask).unwrap();
        assert_eq!(serde_json::to_string(&question).unwrap(), ask);
        let error = serde_json::from_str::<WhatIf>(r#"{"sise":1}"#).unwrap_err();
        assert!(error.to_string().contains("sise"));
    }
}
