//! The monitor in the guest: the size that it has, its consents and its requests.

use std::time::Duration;

use neonvm_types::{Bytes, MilliCpu, Resources, Revision, version::MonitorProtoVersion};
use serde::Serialize;

use crate::agent::{
    action::{ActionSet, Change, Warning},
    desired::{Denied, Requested, RequestedAmount},
    plugin::backoff,
    revision::Stamped,
    settings::Settings,
    units,
};

/// A new request of the guest within this time after the VM may shrink again contradicts the metrics.
const REQUESTS_AGAIN: Duration = Duration::from_secs(60);
/// Wait before a monitor is notified again of a size that does not change.
const INTRODUCE_AGAIN: Duration = Duration::from_secs(30);
/// Largest factor for the time for which a VM does not shrink after a request.
pub const MOST_SETTLING: u32 = 16;

/// A connection after its handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Connection {
    pub version: u32,
    /// When the last message came.
    #[serde(rename = "heard")]
    pub last_contact: Duration,
    /// The approved size: the last one that the monitor acknowledged.
    pub approved: Resources,
    /// The most the guest may have come to use since it last agreed to less. Never below `approved`.
    pub exposed: Resources,
    /// Whether the monitor knows the size from this agent. Until then one that requests amounts takes its processors for its CPU,
    /// which a quota may limit.
    pub notified: bool,
}

/// Kind of a request to the monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Kind {
    /// An `UpscaleNotification`.
    Upscale,
    /// A `DownscaleRequest`.
    Downscale,
}

/// A request under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Asking {
    /// Number of the request.
    pub id: u64,
    /// When it was sent.
    pub since: Duration,
    /// Kind of the request.
    pub kind: Kind,
    /// The size it names.
    pub target: Resources,
    /// What the guest may have been given since.
    pub given: Resources,
    /// The revision it belongs to.
    pub stamped: Stamped,
}

/// State of the monitor, as far as the agent has observed it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Monitor {
    /// The open connection, if any.
    pub connection: Option<Connection>,
    /// Since when there is none, or since when there is one.
    pub since: Duration,
    /// The informant has suspended this agent: another one acts for the VM.
    pub suspended: bool,
    /// When it last served a request or sent one, on this connection or an earlier one.
    pub served_at: Option<Duration>,
    /// The request under way.
    pub asking: Option<Asking>,
    /// A request to grow from a v1.0 monitor.
    pub requested: Option<Requested>,
    pub wants_cpu: Option<RequestedAmount>,
    pub wants_mem: Option<RequestedAmount>,
    /// Until when the VM does not shrink, because it grew by a request.
    pub settled_at: Option<Duration>,
    /// When that ended or ends the last time, and how many times the usual it was.
    pub settling: Option<(Duration, u32)>,
    /// The last denial.
    pub denied: Option<Denied>,
    /// Denials in a row, each after the wait for the one before.
    pub denials: u32,
    /// When the last notification failed.
    pub upscale_failed_at: Option<Duration>,
    /// When the last question failed.
    pub downscale_failed_at: Option<Duration>,
    pub failures: u32,
    /// The last revision that passed the monitor.
    pub revision: Revision,
    /// The last denial's status, the last failure, or why there is no connection.
    #[serde(rename = "said")]
    pub reason: String,
}

/// The VM's sizes, for a plan.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// The observed size, or less if it may have decreased since the observation.
    pub now: Resources,
    /// The requested size.
    pub asked: Resources,
    /// The requested size, or less if a patch to less is under way.
    pub least: Resources,
    /// The size to aim at.
    pub desired: Resources,
    /// The CPU that applies without the guest's consent.
    pub forced: Option<MilliCpu>,
    /// Size of a memory slot.
    pub slot: Bytes,
    /// The steps in which what arrives counts: compute units, or any amount once the guest has taken all that it will take.
    pub step: Resources,
}

impl Monitor {
    /// Whether the monitor requests CPU by itself: its protocol has amounts.
    #[must_use]
    pub fn requests_cpu(&self) -> bool {
        self.connection.is_some_and(|connection| connection.version >= MonitorProtoVersion::V2_0.0)
    }

    #[must_use]
    pub fn approved(&self) -> Option<Resources> {
        self.connection.map(|connection| connection.approved)
    }

    /// A new connection. The monitor has the guest's size, which may be less than the requested size.
    pub fn connected(
        &mut self,
        now: Duration,
        version: MonitorProtoVersion,
        has: Resources,
        most: Resources,
    ) {
        self.reset(now);
        let exposed = most.max(has);
        let notified = version < MonitorProtoVersion::V2_0;
        self.connection =
            Some(Connection { version: version.0, last_contact: now, approved: has, exposed, notified });
    }

    /// The connection is lost, and with it the monitor's consents and denials. Its requests stay in force
    /// until they expire.
    pub fn reset(&mut self, now: Duration) {
        *self = Self {
            since: now,
            served_at: self.served_at,
            requested: self.requested,
            wants_cpu: self.wants_cpu,
            wants_mem: self.wants_mem,
            settled_at: self.settled_at,
            settling: self.settling,
            ..Self::default()
        };
    }

    /// The VM grows by a request, and does not shrink for `usual`. If the guest requests more again soon after it was made
    /// smaller, its requests and metrics disagree: the time doubles each time, up to [`MOST_SETTLING`] times `usual`.
    pub fn settle(&mut self, now: Duration, usual: Duration) {
        let factor = match self.settling {
            Some((until, factor)) if now < until => factor,
            Some((until, factor)) if now < until.saturating_add(REQUESTS_AGAIN) => {
                factor.saturating_mul(2).min(MOST_SETTLING)
            }
            _ => 1,
        };
        let until = now.saturating_add(usual.saturating_mul(factor));
        self.settled_at = Some(until);
        self.settling = Some((until, factor));
    }

    /// A message came.
    pub fn contact(&mut self, now: Duration) {
        if let Some(connection) = &mut self.connection {
            connection.last_contact = now;
            self.served_at = Some(now);
        }
    }

    /// The VM is being given this much.
    pub fn given(&mut self, size: Resources) {
        if let Some(connection) = &mut self.connection {
            connection.exposed = connection.exposed.max(size);
        }
        if let Some(asking) = &mut self.asking {
            asking.given = asking.given.max(size);
        }
    }

    /// The VM has this CPU at most, taken without the guest's consent: the monitor is notified of it like a new one of its size.
    pub fn forced(&mut self, cpu: MilliCpu) {
        if let Some(connection) = self.connection.as_mut().filter(|connection| cpu < connection.exposed.vcpus)
        {
            connection.exposed.vcpus = cpu;
            connection.approved.vcpus = connection.approved.vcpus.min(cpu);
            connection.notified = false;
        }
    }

    #[must_use]
    pub fn denied(&self, now: Duration) -> Option<Denied> {
        self.denied.filter(|denied| now < denied.until)
    }

    /// The notification that is due: of what the VM shows, in whole compute units, and not of what is to go again.
    pub fn plan_upscale(
        &self,
        now: Duration,
        sizes: &Sizes,
        settings: &Settings,
        set: &mut ActionSet,
    ) -> Option<(Resources, Resources)> {
        let approved = self.approved()?;
        let there = arrived(sizes.now, sizes.least, sizes.step);
        let target = there.min(sizes.desired.max(approved));
        // If another client removed resources that the monitor still counts on, the notification corrects
        // that field as well.
        if !target.any_greater(approved) {
            return None;
        }
        if let Some(asking) = &self.asking {
            if asking.kind != Kind::Upscale || asking.target != target {
                set.warnings.push(Warning::MonitorBusy);
            }
            return None;
        }
        if self.wait(now, self.upscale_failed_at, settings, set) {
            return None;
        }
        Some((approved, target))
    }

    /// The size of which a monitor that just connected is notified, although it does not change. Nothing else may be due.
    pub fn plan_introduction(&self, now: Duration, sizes: &Sizes) -> Option<Resources> {
        let Connection { approved, notified, .. } = self.connection?;
        let waits = self.upscale_failed_at.is_some_and(|at| now < at.saturating_add(INTRODUCE_AGAIN));
        let is_due = !notified && self.asking.is_none() && !waits;
        (is_due && approved == sizes.asked && sizes.now == sizes.asked && sizes.desired == sizes.asked)
            .then_some(approved)
    }

    /// The question that is due: whether the guest can live with less.
    pub fn plan_downscale(
        &self,
        now: Duration,
        sizes: &Sizes,
        settings: &Settings,
        set: &mut ActionSet,
    ) -> Option<(Resources, Resources)> {
        let Some(connection) = &self.connection else {
            if sizes.desired.any_less(sizes.asked) {
                set.warnings.push(Warning::NoMonitor);
            }
            return None;
        };
        let unit = settings.compute_unit;
        let exposed = connection.exposed;
        if sizes.forced.is_some_and(|cpu| cpu < exposed.vcpus) {
            // No consent is needed for CPU, and memory is asked for when the CPU has gone.
            return None;
        }
        let step = sizes.desired.max(self.step_limit(now, connection, unit));
        // The size sent to the monitor must not exceed the guest's, so everything that has not arrived is
        // taken back by a request.
        let known = arrived(sizes.now, sizes.asked, sizes.step).max(connection.approved);
        let mut target = exposed;
        if step.vcpus < exposed.vcpus {
            target.vcpus = step.vcpus.min(known.vcpus);
        }
        if step.mem < exposed.mem {
            target.mem = step.mem.min(known.mem);
        }
        target.mem = units::round_up_to_slot(target.mem, sizes.slot).min(exposed.mem);
        if target == exposed {
            return None;
        }
        if set.monitor_upscale.is_some() {
            set.warnings.push(Warning::MonitorBusy);
            return None;
        }
        if let Some(asking) = &self.asking {
            if asking.kind != Kind::Downscale || asking.target != target {
                set.warnings.push(Warning::MonitorBusy);
            }
            return None;
        }
        if self.denied(now).is_some_and(|denied| !target.any_greater(denied.requested)) {
            set.warnings.push(Warning::MonitorDeniedRecently);
            return None;
        }
        if self.wait(now, self.downscale_failed_at, settings, set) {
            return None;
        }
        Some((exposed, target))
    }

    /// How far one question may go: a v1.0 monitor is led down one compute unit at a time, a v2.0 monitor all the way;
    /// after a denial the middle between what was denied and what the guest has is tried, then the middle of what is left.
    fn step_limit(&self, now: Duration, connection: &Connection, unit: Resources) -> Resources {
        let exposed = connection.exposed;
        if connection.version < MonitorProtoVersion::V2_0.0 {
            return exposed.saturating_sub(unit);
        }
        let Some(denied) = self.denied(now) else { return Resources::default() };
        let (low_cpu, low_mem) = units::floor_each(denied.requested, unit);
        let (high_cpu, high_mem) = units::ceil_each(exposed, unit);
        let middle = |low: u32, high: u32| {
            units::times(unit, low.saturating_add(high.saturating_sub(low).div_ceil(2)))
        };
        Resources::new(middle(low_cpu, high_cpu).vcpus, middle(low_mem, high_mem).mem)
    }

    fn wait(
        &self,
        now: Duration,
        failed_at: Option<Duration>,
        settings: &Settings,
        set: &mut ActionSet,
    ) -> bool {
        let until =
            failed_at.map(|at| at.saturating_add(backoff(settings.monitor_retry_wait, self.failures)));
        let Some(until) = until.filter(|until| now < *until) else { return false };
        set.warnings.push(Warning::MonitorFailedRecently);
        set.wait_for(until.saturating_sub(now));
        true
    }

    /// A request went out.
    pub fn started(&mut self, now: Duration, id: u64, kind: Kind, change: &Change, given: Resources) {
        match kind {
            Kind::Upscale => {
                // Once notified the guest relies on it, whether or not the reply arrives.
                self.given(change.target);
                self.upscale_failed_at = None;
            }
            Kind::Downscale => self.downscale_failed_at = None,
        }
        let stamped = Stamped { revision: change.revision, at: now };
        self.asking = Some(Asking { id, since: now, kind, target: change.target, given, stamped });
    }

    /// When the last request failed that was not tried again since.
    #[must_use]
    pub fn failed_at(&self) -> Option<Duration> {
        self.upscale_failed_at.max(self.downscale_failed_at)
    }

    pub fn failed(&mut self, now: Duration, error: String) {
        match self.asking.take().map(|asking| asking.kind) {
            Some(Kind::Upscale) => self.upscale_failed_at = Some(now),
            Some(Kind::Downscale) => self.downscale_failed_at = Some(now),
            None => {}
        }
        self.failures = self.failures.saturating_add(1);
        self.reason = error;
    }

    /// The monitor acknowledged its new size, or consented to it.
    pub fn accepted(&mut self) -> Option<Asking> {
        let asking = self.asking.take()?;
        self.failures = 0;
        if let Some(connection) = &mut self.connection {
            connection.approved = asking.target;
            connection.notified = true;
            connection.exposed = match asking.kind {
                Kind::Upscale => connection.exposed.max(asking.target),
                Kind::Downscale => asking.target.max(asking.given),
            };
        }
        if asking.kind == Kind::Downscale {
            self.denials = 0;
        }
        Some(asking)
    }

    /// The monitor did not agree.
    pub fn denied_now(&mut self, now: Duration, status: String, settings: &Settings) -> Option<Asking> {
        let asking = self.asking.take()?;
        self.failures = 0;
        self.reason = status;
        let current = self.connection.map_or(asking.target, |connection| connection.exposed);
        if self.denied.is_none_or(|denied| asking.since >= denied.until) {
            self.denials = self.denials.saturating_add(1);
        }
        let factor = 1_u32 << self.denials.saturating_sub(2).min(4);
        let cooldown = settings.monitor_denied_downscale_cooldown.saturating_mul(factor);
        self.denied = Some(Denied { until: now.saturating_add(cooldown), current, requested: asking.target });
        Some(asking)
    }

    /// The requests in force, of CPU and memory, until the first of them expires.
    #[must_use]
    pub fn wanted(&self, now: Duration) -> Option<RequestedAmount> {
        RequestedAmount::in_force([self.wants_cpu, self.wants_mem], now)
    }
}

/// The part of the requested size that has arrived: all of it, or as many whole steps as the status shows.
fn arrived(has: Resources, asked: Resources, step: Resources) -> Resources {
    let (cpu, mem) = units::floor_each(has, step);
    let cpu = if has.vcpus >= asked.vcpus { asked.vcpus } else { units::times(step, cpu).vcpus };
    let mem = if has.mem >= asked.mem { asked.mem } else { units::times(step, mem).mem };
    Resources::new(cpu, mem)
}
