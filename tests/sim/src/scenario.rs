//! What a world consists of, as a file.

mod check;
mod demand;
mod span;

use std::time::Duration;

use neonvm_types::{Bytes, MilliCpu, Resources};
use serde::{Deserialize, Serialize};

use crate::FaultSet;

pub use check::Error;
pub(crate) use demand::Curve;
pub use demand::Demand;

/// A world and its load, faults and events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Scenario {
    pub name: String,
    pub description: String,
    /// How long faults happen: 1s to 31 days.
    #[serde(with = "span")]
    pub duration: Duration,
    /// How long the calm after it lasts: 15m and three times `settings.idleScrape` at least, 1 day at most.
    #[serde(with = "span", default = "Scenario::default_quiet")]
    pub quiet: Duration,
    pub nodes: Vec<NodeGroup>,
    pub vms: Vec<VmGroup>,
    #[serde(default)]
    pub settings: SimSettings,
    /// What users do while faults happen.
    #[serde(default)]
    pub people: People,
    /// Faults from which the seed chooses; all if not given.
    #[serde(default = "FaultSet::all")]
    pub faults: FaultSet,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct NodeGroup {
    /// What their names begin with.
    #[serde(default = "NodeGroup::default_name")]
    pub name: String,
    /// How many: 1 to 5,000.
    pub count: u32,
    pub cpu: MilliCpu,
    pub memory: Bytes,
    #[serde(default)]
    pub pods: Vec<PodGroup>,
}

/// Pods that are no VMs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct PodGroup {
    /// How many: 1 to 100.
    pub count: u32,
    pub cpu: MilliCpu,
    pub memory: Bytes,
    /// How long they run before they end and others take their place; for ever if not given.
    #[serde(with = "span::option", default, skip_serializing_if = "Option::is_none")]
    pub lasts: Option<Duration>,
}

/// VMs that are alike. Sizes are compute units; half of the VMs get bounds near them that are none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct VmGroup {
    /// What their names begin with.
    pub name: String,
    /// How many: 1 to 100,000.
    pub count: u32,
    /// Lower bound; at least 1.
    pub min: u32,
    /// Upper bound; at most 1,000.
    pub max: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<u32>,
    /// Compute units whose CPU the load needs.
    pub demand: Demand,
    /// Compute units whose memory the load needs; half of `min` if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Demand>,
    #[serde(default)]
    pub guest: Guest,
    /// Whether the scheduler may migrate them.
    #[serde(default)]
    pub movable: bool,
    #[serde(default)]
    pub address: bool,
    /// Factor by which their requests are discounted: 1 to 10.
    #[serde(default = "VmGroup::default_overcommit")]
    pub overcommit: f64,
}

/// How a guest replies to a request to shrink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Guest {
    /// As the monitor's policy decides.
    #[default]
    Agrees,
    /// Always no.
    Refuses,
    /// Nothing.
    Stalls,
}

/// What agents and the scheduler are configured with, as far as it differs from what is shipped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct SimSettings {
    pub unit_cpu: MilliCpu,
    pub unit_memory: Bytes,
    pub slot: Bytes,
    /// Share of a node above which VMs are to leave.
    pub watermark: f64,
    pub migration: bool,
    #[serde(with = "span")]
    pub migration_takes: Duration,
    /// Whether a second scheduler stands by.
    pub standby: bool,
    /// Time between two scrapes of a VM where something changes.
    #[serde(with = "span")]
    pub scrape: Duration,
    /// The same where nothing changes.
    #[serde(with = "span")]
    pub idle_scrape: Duration,
    /// Longest time between two reports of a VM to the scheduler.
    #[serde(with = "span")]
    pub tick: Duration,
    /// Whether guests request more within a second.
    #[serde(rename = "fastWishes")]
    pub fast_requests: bool,
}

impl Default for SimSettings {
    fn default() -> Self {
        Self {
            unit_cpu: MilliCpu::new(250),
            unit_memory: Bytes::gib(1),
            slot: Bytes::mib(128),
            watermark: 0.9,
            migration: true,
            migration_takes: Duration::from_secs(15),
            standby: false,
            scrape: Duration::from_secs(5),
            idle_scrape: Duration::from_secs(30),
            tick: Duration::from_secs(15),
            fast_requests: true,
        }
    }
}

impl SimSettings {
    pub const fn unit(&self) -> Resources {
        Resources::new(self.unit_cpu, self.unit_memory)
    }
}

/// How often users do things, per hour of the phase with faults, in the whole world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct People {
    pub creates: f64,
    pub deletes: f64,
    pub bounds: f64,
    pub holds: f64,
    pub cordons: f64,
    /// Nodes drained: closed for some minutes, and every VM on them is migrated away.
    pub drains: f64,
    /// VMs migrated for no other reason.
    pub moves: f64,
    /// Migrations cancelled or deleted, in any state.
    pub cancels: f64,
}

impl NodeGroup {
    fn default_name() -> String {
        "node".to_owned()
    }
}

impl VmGroup {
    const fn default_overcommit() -> f64 {
        1.0
    }
}

impl Scenario {
    const fn default_quiet() -> Duration {
        Duration::from_secs(20 * 60)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// Names the field that is wrong, and what to write.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let scenario = serde_saphyr::with_deserializer_from_str(text, |yaml| {
            Self::deserialize(neonvm_types::objects::Objects(yaml))
        });
        let scenario = scenario.map_err(|error| Error::syntax(&error))?;
        scenario.check()?;
        Ok(scenario)
    }

    /// All VMs at the start.
    pub fn vm_count(&self) -> u64 {
        self.vms.iter().map(|group| u64::from(group.count)).sum()
    }

    pub fn node_count(&self) -> u64 {
        self.nodes.iter().map(|group| u64::from(group.count)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `[0.7]` is no object, at any depth.
    #[test]
    fn a_list_stands_for_no_object() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/scenarios");
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            Scenario::parse(&text).unwrap();
            let document: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
            for (at, changed) in neonvm_test_support::lists::for_objects(&document) {
                assert!(Scenario::parse(&changed.to_string()).is_err(), "{}: {at}", path.display());
            }
        }
    }
}
