//! CPU: when to request more, what to release. Only with agents of protocol v2.0.

use std::time::Duration;

use neonvm_types::MilliCpu;
use neonvm_types::version::MonitorProtoVersion;

use super::history::milli;
use super::policy::Policy;

/// A growth within this time after a request is its result.
const ANSWERED: Duration = Duration::from_secs(5);

impl Policy {
    pub(super) fn speaks_of_amounts(&self) -> bool {
        self.version.is_some_and(|version| version >= MonitorProtoVersion::V2_0)
    }

    /// CPU the guest has now: what was granted, as far as processors are online for it.
    pub(super) fn cpu_now(&self) -> Option<MilliCpu> {
        let online = milli(u64::from(self.history.last()?.online) * 1000);
        Some(self.granted.map_or(online, |granted| granted.vcpus.min(online)))
    }

    /// What a saturated guest is to request. At least what it has, so that a repeated request keeps the agent from taking CPU
    /// away.
    pub(super) fn cpu_wanted(&self, at: Duration) -> Option<(MilliCpu, String)> {
        let now = self.cpu_now()?;
        let need = self.evidence.need(at)?;
        let most = self.settings.most_cpus.max(self.history.last()?.online);
        let wanted = need.cpu.min(milli(u64::from(most) * 1000)).max(now);
        let lasted = need.lasted.as_millis();
        Some((wanted, format!("CPU: {} runnable tasks on {now} for {lasted} ms", need.tasks)))
    }

    /// The VM is granted `granted`. If it asked for more, it is seen whether that is used, and more can be requested at once.
    pub(super) fn follow_growth(&mut self, now: Duration, granted: MilliCpu) {
        let Some(before) = self.cpu_now().filter(|before| granted > *before) else { return };
        if self.asked_cpu.take_if(|at| now.saturating_sub(*at) < ANSWERED).is_some() {
            self.evidence.grown(now, before);
        }
    }

    /// Why the VM must not shrink to `target`.
    pub(super) fn cpu_refusal(&self, target: MilliCpu) -> Option<String> {
        let now = self.cpu_now()?;
        if !self.speaks_of_amounts() || target >= now {
            return None;
        }
        if let Some(runnable) = self.history.saturation(target) {
            return Some(format!("CPU: {runnable} runnable tasks saturate {target}"));
        }
        let busy = self.history.busy_cpus()?;
        let full = u64::from(busy.milli()) * 10 >= u64::from(target.milli()) * 9;
        full.then(|| format!("CPU: {busy} in use is 90 % of {target} or more"))
    }
}
