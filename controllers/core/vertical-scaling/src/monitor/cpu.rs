//! CPU: when to request more, what to release. Only with agents of protocol v2.0.

use neonvm_types::MilliCpu;
use neonvm_types::version::MonitorProtoVersion;

use super::history::milli;
use super::policy::Policy;

impl Policy {
    pub(super) fn speaks_of_amounts(&self) -> bool {
        self.version.is_some_and(|version| version >= MonitorProtoVersion::V2_0)
    }

    /// CPU the guest has now: what was granted, as far as processors are online for it.
    fn cpu_now(&self) -> Option<MilliCpu> {
        let online = milli(u64::from(self.history.last()?.online) * 1000);
        Some(self.granted.map_or(online, |granted| granted.vcpus.min(online)))
    }

    /// What a saturated guest could use: so much that its runnable tasks are 90 % of it, as agents size by load average. At
    /// least what it has, so that a repeated request keeps the agent from taking CPU away.
    pub(super) fn cpu_wanted(&self) -> Option<(MilliCpu, String)> {
        let now = self.cpu_now()?;
        let runnable = self.history.saturation(now)?;
        let most = self.settings.most_cpus.max(self.history.last()?.online);
        let wanted =
            milli((u64::from(runnable.milli()) * 10).div_ceil(9).min(u64::from(most) * 1000)).max(now);
        Some((wanted, format!("CPU: {runnable} runnable tasks on {now}")))
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
