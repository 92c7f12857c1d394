//! What the decisions depend on besides the cluster.

use std::collections::{BTreeMap, BTreeSet};

use neonvm_types::{Bytes, MilliCpu, Resources};

use super::{Pair, Scoring};

/// Settings of [`super::State`].
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Share of a node above which VMs are to leave; above 0, at most 1.
    pub watermark: Pair<f64>,
    /// The same for single nodes, by name.
    pub node_watermarks: BTreeMap<String, Pair<f64>>,
    /// How nodes are compared.
    pub scoring: Scoring,
    /// Pods of these namespaces do not count against permits; they do count when a pod is placed.
    pub ignored_namespaces: BTreeSet<String>,
    /// Compute unit of agents that do not name one (before v4.0). No field is zero.
    pub compute_unit: Resources,
    /// Most VMs that leave a node at the same time.
    pub migrations_per_node: u32,
    /// Whether migrations are started, not only planned.
    pub do_migration: bool,
    /// Whether the cluster resizes pods in place, so that the requests of a VM's pod are those of its VM. A pod then counts what it
    /// requests and what its agent was permitted; annotations, which authors of pods can write, count for nothing beyond that.
    pub pods_are_resized: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            watermark: Pair::both(0.9),
            node_watermarks: BTreeMap::new(),
            scoring: Scoring::default(),
            ignored_namespaces: BTreeSet::new(),
            compute_unit: Resources::new(MilliCpu::new(250), Bytes::gib(1)),
            migrations_per_node: 1,
            do_migration: false,
            pods_are_resized: false,
        }
    }
}

/// A setting that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {reason}")]
pub struct SettingsError {
    pub key: &'static str,
    /// What is wrong with it.
    pub reason: String,
}

impl Settings {
    /// All that is wrong.
    #[must_use]
    pub fn validate(&self) -> Vec<SettingsError> {
        let mut errors = self.scoring.validate();
        let mut refuse = |key, reason: String| errors.push(SettingsError { key, reason });
        let wrong = |value: f64| !(value > 0.0 && value <= 1.0);
        for (key, value) in [("watermark.cpu", self.watermark.cpu), ("watermark.memory", self.watermark.mem)]
        {
            if wrong(value) {
                refuse(key, format!("{value} must be above 0 and at most 1"));
            }
        }
        for (node, watermark) in &self.node_watermarks {
            if wrong(watermark.cpu) || wrong(watermark.mem) {
                let values = format!("{} and {}", watermark.cpu, watermark.mem);
                refuse(
                    "nodeOverrides",
                    format!("watermarks of {node}: {values} must be above 0 and at most 1"),
                );
            }
        }
        if let Err(error) = self.compute_unit.validate_non_zero() {
            refuse("computeUnit", error.to_string());
        }
        errors
    }
}
