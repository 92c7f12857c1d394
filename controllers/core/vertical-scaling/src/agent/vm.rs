//! A VM as the agent's watch shows it.

use std::time::Duration;

use neonvm_api::VmInfo;
use neonvm_types::Resources;
use serde::Serialize;

/// One observation of a VM object.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Vm {
    /// Bounds, configuration, the requested size (`info.using()`) and `status.currentRevision`.
    pub info: VmInfo,
    /// The observed size: `status.cpus` and `status.memorySize`; `None` before the status has both. A field of zero is unknown.
    pub observed: Option<Resources>,
    /// A person fixed this size until that time, on the clock of [`crate::agent::State::step`].
    pub hold: Option<(Resources, Duration)>,
    /// Whether the CPU of that size applies without the guest's consent: with less CPU a guest is slower, but keeps all it has.
    pub forced: bool,
    /// Why its node does not provide the requested size; `None` if the node does not refuse.
    pub denied: Option<String>,
    /// Whether the status shows a migration that has not ended.
    pub migrating: bool,
    /// Whether the guest's CPUs stand still on request, or are to: nothing is expected of the guest, and its size stays.
    pub paused: bool,
    /// Since when its memory is in a file, and what wakes it, in words; `None` if it is not.
    pub suspended: Option<String>,
    /// `metadata.generation`: an observation older than the agent's own last patch is ignored. `None` if
    /// unknown.
    pub generation: Option<i64>,
}

impl Vm {
    /// An observation with nothing but the object's spec.
    #[must_use]
    pub fn new(info: VmInfo) -> Self {
        Self {
            info,
            observed: None,
            hold: None,
            forced: false,
            denied: None,
            migrating: false,
            paused: false,
            suspended: None,
            generation: None,
        }
    }

    /// Whether a status about `status_generation` is from before the last change of the object. False if
    /// either is unknown.
    #[must_use]
    pub fn status_is_old(&self, status_generation: Option<i64>) -> bool {
        status_generation.zip(self.generation).is_some_and(|(status, spec)| status < spec)
    }
}
