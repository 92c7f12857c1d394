//! The agent, the scheduler that permits everything, and the VM object.

use neonvm_api::VmInfo;
use neonvm_api::vm_info::{VmConfig, VmCpuInfo, VmMemInfo};
use neonvm_core_vertical_scaling::agent::{Action, Event as Input, units};
use neonvm_types::{Bytes, Resources, Revision, RevisionWithTime};

use super::{Event, MESSAGE, Play, UNIT};
use crate::queue::{MILLI, Time};
use crate::world::{duration, micros};

/// Time of a request to the scheduler.
const PERMIT: Time = 2 * MILLI;
/// Time of a patch at the API server.
const PATCH: Time = 10 * MILLI;
/// Time from the patch to the guest that has the size, as on a quiet node.
const CHANGE: Time = 70 * MILLI;

impl Play {
    /// The agent takes something in; what it requests is on its way.
    pub(super) fn agent_step(&mut self, input: Input) {
        let outcome = self.agent.step(duration(self.now), input);
        for action in outcome.actions {
            match action {
                Action::AskScheduler { id, request } => {
                    self.after(PERMIT, Event::Permit { id, size: request.target });
                }
                Action::PatchVm { id, to, revision, .. } => {
                    self.after(PATCH, Event::Patch { id, size: to, revision });
                }
                Action::AskMonitorDownscale { id, to, .. } => {
                    self.after(MESSAGE, Event::Question { id, size: to, down: true });
                }
                Action::NotifyUpscale { id, to, .. } => {
                    self.after(MESSAGE, Event::Question { id, size: to, down: false });
                }
                Action::ResetMonitor { .. } => {
                    let version = self.version;
                    self.agent_step(Input::MonitorConnected { version });
                }
            }
        }
        let Some(at) = outcome.wake_at.map(micros).map(|at| at.max(self.now + 1)) else { return };
        if self.wake.is_none_or(|wake| at < wake) {
            self.wake = Some(at);
            self.queue.push(at, Event::Wake(at));
        }
    }

    pub(super) fn patch(&mut self, id: u64, size: Resources, revision: Revision) {
        self.generation += 1;
        let generation = self.generation;
        if self.vm.info.set_using(size).is_none() {
            return;
        }
        self.vm.generation = Some(generation);
        self.after(CHANGE, Event::Changed { size, generation, revision });
        self.agent_step(Input::PatchReply { id, result: Ok(Some(generation)) });
    }

    pub(super) fn changed(&mut self, size: Resources, generation: i64, revision: Revision) {
        self.has = size;
        self.processor.resize(u64::from(size.vcpus.milli()));
        self.account.resized(self.now, units::floor(size, UNIT));
        self.vm.observed = Some(size);
        self.vm.info.current_revision = Some(RevisionWithTime { revision, updated_at: None });
        let vm = self.vm.clone();
        self.agent_step(Input::VmSeen { vm, status_generation: Some(generation) });
    }
}

/// A VM of the smallest size within these bounds.
pub(super) fn info(min: Resources, max: Resources) -> VmInfo {
    let slot_size = Bytes::gib(1);
    let slots = |size: Resources| size.mem.slots(slot_size).and_then(|n| u16::try_from(n).ok()).unwrap_or(1);
    VmInfo {
        name: "vm".to_owned(),
        namespace: "default".to_owned(),
        cpu: VmCpuInfo { min: min.vcpus, max: max.vcpus, r#use: min.vcpus },
        mem: VmMemInfo { min: slots(min), max: slots(max), r#use: slots(min), slot_size },
        config: VmConfig { scaling_enabled: true, ..VmConfig::default() },
        current_revision: None,
    }
}
