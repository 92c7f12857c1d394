//! The scheduler: its permits, when a request is sent, and when it is repeated.

use std::time::Duration;

use neonvm_types::{Resources, Revision};
use serde::Serialize;

use crate::agent::{
    action::{ActionSet, PluginRequest, Warning},
    revision::Stamped,
    settings::Settings,
    units,
};

/// A request under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Asking {
    /// Number of the request.
    pub id: u64,
    /// When it was sent.
    pub since: Duration,
    /// The size that was requested.
    pub target: Resources,
    /// The permit when the request was sent.
    pub held: Option<Resources>,
    /// What the VM had then: a permit below it is no permit.
    pub current: Resources,
    /// The revision it belongs to.
    pub stamped: Stamped,
}

/// State of the exchange with the scheduler.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Plugin {
    /// The request under way.
    pub asking: Option<Asking>,
    /// When the last request was sent, and for what.
    pub last: Option<(Duration, Resources)>,
    /// The last permit received.
    pub permit: Option<Resources>,
    /// When the last request failed; `None` once one succeeded.
    pub failed_at: Option<Duration>,
    pub failures: u32,
    /// Permits below the request, in a row.
    pub denials: u32,
    /// The last revision that passed the scheduler.
    pub revision: Revision,
    /// What the last failure was.
    pub error: String,
}

/// What the decision needs beside the scheduler's own state.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    /// What the VM has or was set to: the maximum of the observed size, the requested size and the patch
    /// under way.
    pub current: Resources,
    /// The size to aim at.
    pub desired: Resources,
}

/// Why a permit is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPermit {
    /// A field is zero.
    #[error("a field of the permit is 0")]
    Zero,
    /// More than was requested.
    #[error("the permit is above the request")]
    AboveRequest,
    /// Less than the VM has.
    #[error("the permit is below what the VM has")]
    BelowUse,
}

impl Plugin {
    /// The request that was denied: the last one, if the permit is below it.
    #[must_use]
    pub fn denied(&self) -> Option<(Duration, Resources)> {
        let permit = self.permit?;
        self.last.filter(|(_, target)| self.asking.is_none() && target.any_greater(permit))
    }

    /// Until when a denied request is not repeated.
    #[must_use]
    pub fn denied_until(&self, settings: &Settings) -> Option<Duration> {
        let (at, _) = self.denied()?;
        let factor = 1_u32 << self.denials.saturating_sub(1).min(2);
        Some(at.saturating_add(settings.plugin_denied_retry_wait.saturating_mul(factor)))
    }

    /// Until when a failed request is not repeated.
    #[must_use]
    pub fn failed_until(&self, settings: &Settings) -> Option<Duration> {
        let wait = backoff(settings.plugin_retry_wait, self.failures);
        self.failed_at.map(|at| at.saturating_add(wait))
    }

    /// Adds the request that is due to `set`, or the wait for it.
    pub fn plan(
        &self,
        now: Duration,
        need: Need,
        settings: &Settings,
        set: &mut ActionSet,
    ) -> Option<Resources> {
        let Need { current, desired } = need;
        let requested = current.max(desired);
        let elapsed = self.last.map(|(at, _)| now.saturating_sub(at));
        let until_tick = elapsed.map_or(Duration::ZERO, |e| settings.plugin_request_tick.saturating_sub(e));
        // A failed request left the scheduler without news, so that the tick does not count.
        let due = until_tick.is_zero() || self.failed_at.is_some();
        let wants_other = self.permit.is_some_and(|permit| permit != requested) && self.last.is_some();
        let backing_off = self.denied_until(settings).filter(|until| now < *until);
        let goes_for_it = wants_other && backing_off.is_none();
        // Otherwise the request is what the VM has, plus what was permitted and the VM is about to grow to.
        let held = current.max(self.permit.map_or(current, |permit| permit.min(requested)));
        let target = if goes_for_it { requested } else { held };
        if let Some(asking) = &self.asking {
            if asking.target != target {
                set.warnings.push(Warning::PluginBusy);
            }
            return None;
        }
        if let Some(until) = self.failed_until(settings).filter(|until| now < *until) {
            if wants_other || due {
                set.warnings.push(Warning::PluginFailedRecently);
            }
            set.wait_for(until.saturating_sub(now));
            return None;
        }
        let backing_off = backing_off.filter(|_| wants_other);
        if backing_off.is_some() {
            set.warnings.push(Warning::PluginDeniedRecently);
        }
        if due || goes_for_it {
            return Some(target);
        }
        let until_retry = backing_off.map(|until| until.saturating_sub(now));
        set.wait_for(until_retry.map_or(until_tick, |retry| retry.min(until_tick)));
        None
    }

    /// A request was sent. If it is for less than the permit, the scheduler may give the rest to other VMs from now on, whether
    /// or not the reply arrives.
    pub fn started(&mut self, now: Duration, id: u64, request: &PluginRequest, current: Resources) {
        self.last = Some((now, request.target));
        let held = self.permit;
        self.permit = self.permit.map(|permit| permit.min(request.target));
        let stamped = Stamped { revision: request.revision, at: now };
        self.asking = Some(Asking { id, since: now, target: request.target, held, current, stamped });
    }

    pub fn failed(&mut self, now: Duration, error: String) {
        self.asking = None;
        self.failed_at = Some(now);
        self.failures = self.failures.saturating_add(1);
        self.error = error;
    }

    /// Takes in a permit. It must not exceed the request, nor be less than the size that the VM had at the
    /// time. `least` is what the VM has at least.
    ///
    /// # Errors
    /// What is wrong with it. The permit held so far is still reduced to it, but not below `least`.
    pub fn permitted(&mut self, permit: Resources, least: Resources) -> Result<Asking, BadPermit> {
        let Some(asking) = self.asking else { return Err(BadPermit::AboveRequest) };
        let bad = if permit.validate_non_zero().is_err() {
            Some(BadPermit::Zero)
        } else if permit.any_greater(asking.target) {
            Some(BadPermit::AboveRequest)
        } else {
            permit.any_less(asking.current).then_some(BadPermit::BelowUse)
        };
        if let Some(bad) = bad {
            self.permit = self.permit.map(|held| held.min(permit.max(least)));
            return Err(bad);
        }
        self.asking = None;
        self.failed_at = None;
        self.failures = 0;
        self.denials = if asking.target.any_greater(permit) { self.denials.saturating_add(1) } else { 0 };
        self.permit = Some(permit);
        Ok(asking)
    }

    /// What the VM may grow to for `desired`: all of it if permitted. Of a number of compute units as many as are permitted in both
    /// resources; of any other size as many whole units of each resource as are permitted of it.
    #[must_use]
    pub fn usable(&self, desired: Resources, unit: Resources) -> Option<Resources> {
        let permit = self.permit?;
        if !desired.any_greater(permit) {
            return Some(desired);
        }
        if units::exact(desired, unit).is_some() {
            return Some(permit.min(units::times(unit, units::floor(permit, unit))));
        }
        let (cpu, mem) = units::floor_each(permit, unit);
        Some(Resources {
            vcpus: if desired.vcpus <= permit.vcpus { desired.vcpus } else { units::times(unit, cpu).vcpus },
            mem: if desired.mem <= permit.mem { desired.mem } else { units::times(unit, mem).mem },
        })
    }
}

/// The most that a wait grows by.
pub const MOST_BACKOFF: u32 = 8;

/// `base`, doubled for each failure in a row after the first, at most [`MOST_BACKOFF`] times as long.
#[must_use]
pub fn backoff(base: Duration, failures: u32) -> Duration {
    let factor = 1_u32 << failures.saturating_sub(1).min(3);
    base.saturating_mul(factor.min(MOST_BACKOFF))
}
