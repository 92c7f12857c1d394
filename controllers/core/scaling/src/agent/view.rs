//! What a person is shown of one VM.

use std::time::Duration;

use neonvm_types::{Resources, agent_inspect::VmInspect};
use serde::Serialize;

use crate::agent::note::Note;

/// One VM at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct View {
    /// Name of the VM.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// NOW.
    pub now: Resources,
    /// ASKED.
    pub asked: Resources,
    /// GOAL, within the bounds; `None` before the first step.
    pub goal: Option<Resources>,
    /// PERMIT.
    pub permit: Option<Resources>,
    /// APPROVED; `None` without a monitor.
    pub approved: Option<Resources>,
    /// The step in which the VM scales.
    pub compute_unit: Resources,
    /// Lower bound.
    pub min: Resources,
    /// Upper bound.
    pub max: Resources,
    /// One-minute load average.
    pub load1: Option<f64>,
    /// Memory in use, in bytes.
    pub memory_used: Option<u64>,
    /// Working set of the file cache, in bytes.
    pub cache_working_set: Option<u64>,
    /// Age of the system metrics.
    pub metrics_age: Option<Duration>,
    /// What is going on, in words.
    pub state: String,
    /// What keeps the VM from its goal for long, in words.
    pub stuck: Option<String>,
    /// What keeps it at its size although all works.
    pub limit: Option<String>,
    /// The size a person fixed, and for how much longer.
    pub hold: Option<(Resources, Duration)>,
    /// The last decisions, oldest first.
    pub decisions: Vec<Note>,
}

impl View {
    /// The document for tools. `epoch_unix_ms` is the wall clock, in milliseconds since 1970, at which the clock of
    /// `step` was zero.
    #[must_use]
    pub fn to_inspect(&self, epoch_unix_ms: i64) -> VmInspect {
        let _ = epoch_unix_ms;
        VmInspect { name: self.name.clone(), namespace: self.namespace.clone(), ..VmInspect::default() }
    }
}
