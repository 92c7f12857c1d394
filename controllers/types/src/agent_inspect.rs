//! The state that an agent reports: the document of `GET /v1/inspect`.
//!
//! Plain data for people's tools. Unknown keys are accepted and absent ones have a default, so that a newer agent can be
//! read by an older tool and the other way round.

use serde::{Deserialize, Serialize};

use crate::Resources;

/// One agent and every VM it looks after.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentInspect {
    /// The agent's name: its pod, or `agent/<node>`.
    pub agent: String,
    /// Version of the agent's build.
    pub version: String,
    /// The node for whose VMs it is responsible.
    pub node: String,
    /// The VMs, by namespace and name.
    pub vms: Vec<VmInspect>,
}

/// One VM as its agent sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VmInspect {
    /// Name of the VM.
    pub name: String,
    /// Namespace of the VM.
    pub namespace: String,
    /// NOW: what the VM's status shows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub now: Option<Resources>,
    /// The requested size: `spec.guest.*.use`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<Resources>,
    /// GOAL: what metrics, requests and people want, within the bounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goal: Option<Resources>,
    /// PERMIT: what the scheduler allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permit: Option<Resources>,
    /// The approved size: the last one that the guest's monitor acknowledged or consented to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approved: Option<Resources>,
    /// What answers in the guest, with the version of its protocol: `monitor v2.0` or `informant v2.0`. Absent without a
    /// connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest_protocol: Option<String>,
    /// The step in which the VM scales.
    pub compute_unit: Resources,
    /// The least it shrinks to.
    pub min: Resources,
    /// The most it grows to.
    pub max: Resources,
    /// One-minute load average.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load1: Option<f64>,
    /// Memory in use without page cache, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_used_bytes: Option<u64>,
    /// Working set of the file cache, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_working_set_bytes: Option<u64>,
    /// Age of the system metrics, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics_age_seconds: Option<f64>,
    /// The current activity, in words: `waiting: scheduler (next try 3.8s)`.
    pub state: String,
    /// What keeps the VM from its goal for long, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stuck: Option<String>,
    /// What keeps the VM at its size although all works: a bound, a denial, a missing permit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// The size a person fixed, while it is in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<HoldInspect>,
    /// For how long the scheduler has announced a migration, in seconds: the VM keeps its size meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration_announced_seconds: Option<f64>,
    /// Requests that failed within the interval of `maxFailedRequestRate`.
    pub failed_requests: FailedRequests,
    /// How long ago the monitor last served a request, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub monitor_served_seconds_ago: Option<f64>,
    /// What each metric alone calls for, in compute units.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goal_parts: Option<GoalParts>,
    /// Requests and loops that the VM's task has started and that run.
    pub background_tasks: u64,
    /// Requests that the monitor has not answered yet; absent without a connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub monitor_waiting: Option<u64>,
    /// The last decisions, oldest first.
    pub decisions: Vec<Decision>,
}

/// Numbers of requests that failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FailedRequests {
    /// To the scheduler.
    pub scheduler: u64,
    /// To the monitor.
    pub monitor: u64,
    /// Patches of the VM.
    pub patch: u64,
}

/// Parts of a goal, in compute units; absent where there is no metric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GoalParts {
    /// Load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
    /// Memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem: Option<f64>,
    /// File cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lfc: Option<f64>,
}

/// A size that a person fixed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HoldInspect {
    /// Size in compute units, CPU and memory.
    pub size: Resources,
    /// For how much longer, in seconds.
    pub remaining_seconds: f64,
    /// Whether CPU was taken away without the consent of the guest's monitor.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

/// A decision in words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Decision {
    /// When: UTC, RFC 3339 with milliseconds.
    pub at: String,
    /// What came in and what was done about it.
    pub text: String,
    /// Which rule made the difference, where it was not the load alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_and_newer_documents_are_read() {
        let newer = r#"{"agent":"a","shoeSize":43,"vms":[{"name":"v","namespace":"n","metricsAgeSeconds":1.5,"new":{}}]}"#;
        let read: AgentInspect = serde_json::from_str(newer).unwrap();
        assert_eq!(read.vms[0].metrics_age_seconds, Some(1.5));
        assert_eq!(serde_json::from_str::<AgentInspect>("{}").unwrap(), AgentInspect::default());
        let written = serde_json::to_string(&read).unwrap();
        assert_eq!(serde_json::from_str::<AgentInspect>(&written).unwrap(), read);
    }
}
