//! The size that follows from the goal: requests of the monitor and of users, denials, missing metrics, and
//! the bounds.

use std::time::Duration;

use neonvm_types::{MoreResources, Resources};
use serde::Serialize;

use crate::agent::{
    evidence::{Coupling, Evidence, Range},
    units,
};

/// Memory pressure, in percent, from which on one compute unit more is wanted.
pub const MEMORY_PRESSURE_GROW: f64 = 10.0;
/// Memory pressure, in percent, from which on the VM does not shrink: below where it grows, so that it does not swing.
pub const MEMORY_PRESSURE_HOLD: f64 = 5.0;
/// CPU pressure, in percent, from which on the VM does not shrink.
pub const CPU_PRESSURE_HOLD: f64 = 50.0;

/// A request of a v1.0 monitor: one compute unit more than it had at the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Requested {
    /// When it ends.
    pub until: Duration,
    /// The size that the monitor had when it sent the request.
    pub base: Resources,
    /// The resources of which it requested more.
    pub more: MoreResources,
}

/// A requested amount of one resource, zero in the other field, and when the request expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RequestedAmount {
    /// The amount.
    pub size: Resources,
    /// When it ends.
    pub until: Duration,
}

impl RequestedAmount {
    /// The request in force after a new one: a larger one stays until it expires; the same or a larger new one replaces it.
    #[must_use]
    pub fn renewed(old: Option<Self>, new: Self, now: Duration) -> Self {
        old.filter(|old| now < old.until && old.size.any_greater(new.size)).unwrap_or(new)
    }

    /// Both requests, as far as they have not expired, until the first of them does.
    #[must_use]
    pub fn in_force(requests: [Option<Self>; 2], now: Duration) -> Option<Self> {
        let valid = requests.into_iter().flatten().filter(|request| now < request.until);
        valid.reduce(|a, b| Self { size: a.size.max(b.size), until: a.until.min(b.until) })
    }
}

/// A size that the monitor did not agree to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Denied {
    /// Until when the size is not requested again.
    pub until: Duration,
    /// What the guest had.
    pub current: Resources,
    /// What it was to shrink to.
    pub requested: Resources,
}

/// The rule that decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Why {
    /// The metrics called for this size.
    #[default]
    Metrics,
    /// A v1.0 monitor requested more.
    Requested,
    /// The monitor requested this much.
    Wanted,
    MemoryPressure,
    /// Pressure in the guest, or a monitor's request granted a moment ago: no shrinking.
    Settling,
    /// It grew again too soon after it had shrunk: no shrinking for a while.
    Turned,
    /// Not all metrics are there: no shrinking.
    Blind,
    /// The monitor denied to shrink further.
    Denied,
    /// A person fixed the size.
    Hold,
    /// The node denied more a moment ago.
    Node,
    /// The lower bound.
    Minimum,
    /// The upper bound.
    Maximum,
}

impl Why {
    /// In words; `None` for the metrics, which need none.
    #[must_use]
    pub const fn words(self) -> Option<&'static str> {
        match self {
            Self::Metrics => None,
            Self::Requested => Some("the monitor asked for more memory"),
            Self::Wanted => Some("the monitor wants this much"),
            Self::MemoryPressure => Some("tasks wait for memory"),
            Self::Settling => Some("no shrinking yet: the guest is under pressure, or was a moment ago"),
            Self::Turned => Some("no shrinking for a while: it grew again too soon after it had shrunk"),
            Self::Blind => Some("no shrinking without all metrics"),
            Self::Denied => Some("the monitor denied to shrink further"),
            Self::Hold => Some("a person fixed the size"),
            Self::Node => Some("its node denied more"),
            Self::Minimum => Some("lower bound"),
            Self::Maximum => Some("upper bound"),
        }
    }
}

/// What the size is made from.
#[derive(Clone, Copy, Debug)]
pub struct Inputs {
    /// Size of one compute unit.
    pub unit: Resources,
    /// Size of a memory slot.
    pub slot: neonvm_types::Bytes,
    /// Lower bound.
    pub min: Resources,
    /// Upper bound.
    pub max: Resources,
    /// The requested size.
    pub asked: Resources,
    /// The observed size.
    pub now: Resources,
    /// What the metrics call for.
    pub goal: Evidence,
    /// Whether all metrics are there and young enough.
    pub complete: bool,
    /// Whether pressure or a request just granted forbids to shrink.
    pub settling: bool,
    /// Whether a resource does not shrink for a while, because it turned too soon.
    pub turned: bool,
    /// Memory required by memory pressure.
    pub pressed: Option<neonvm_types::Bytes>,
    /// What the node denied to go beyond, while that is in force.
    pub room: Option<Resources>,
    /// A size fixed by a person, while it is in force.
    pub hold: Option<Resources>,
    /// Whether a denial keeps no CPU above that size.
    pub forced: bool,
    /// A v1.0 request, while it is in force.
    pub requested: Option<Requested>,
    /// A request for an amount, while it is in force.
    pub wanted: Option<RequestedAmount>,
    /// A denial, while it is in force.
    pub denied: Option<Denied>,
}

/// The size to aim at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Desired {
    pub size: Resources,
    /// The rule that decided.
    pub why: Why,
    /// When a request that made a difference expires.
    pub request_until: Option<Duration>,
    /// When a denial ends that made a difference.
    pub denied_until: Option<Duration>,
    /// Whether a denial keeps the size above the maximum.
    pub above_max: bool,
    /// What the size was made from, unless a person fixed it.
    pub evidence: Option<Evidence>,
}

impl Requested {
    /// Compute units that satisfy it.
    #[must_use]
    pub fn units(&self, unit: Resources) -> u32 {
        let (cpu, mem) = units::floor_each(self.base, unit);
        let cpu = if self.more.cpu { cpu.saturating_add(1) } else { 0 };
        cpu.max(if self.more.memory { mem.saturating_add(1) } else { 0 })
    }
}

impl Denied {
    /// Compute units that are more than what was denied, in both fields.
    #[must_use]
    pub fn units(&self, unit: Resources) -> u32 {
        let (cpu, mem) = units::floor_each(self.requested, unit);
        cpu.max(mem).saturating_add(1)
    }

    /// What the VM does not go below while the denial is in force: one unit more than denied, at most what it had.
    #[must_use]
    pub fn floor(&self, unit: Resources) -> Resources {
        let (cpu, mem) = units::floor_each(self.requested, unit);
        let above = Resources::new(
            units::times(unit, cpu.saturating_add(1)).vcpus,
            units::times(unit, mem.saturating_add(1)).mem,
        );
        self.current.min(above)
    }
}

/// All evidence: of metrics, requests and pressure.
pub(super) fn evidence(inputs: &Inputs) -> Evidence {
    floors(inputs).0
}

/// All evidence, and which of it decided.
fn floors(inputs: &Inputs) -> (Evidence, Why) {
    let unit = inputs.unit;
    let mut best = (inputs.goal, Why::Metrics);
    let mut raise = |need: Option<Resources>, why| {
        if let Some(need) = need.filter(|need| need.any_greater(best.0.grow)) {
            best = (best.0.with(need), why);
        }
    };
    let count = |units: u32| units::times(unit, units);
    raise(inputs.pressed.map(|mem| Resources { mem, ..Resources::default() }), Why::MemoryPressure);
    raise(inputs.requested.map(|r| count(r.units(unit))), Why::Requested);
    raise(inputs.wanted.map(|w| w.size), Why::Wanted);
    // What was denied keeps the size that is there. As upstream it counts as compute units where metrics do.
    let counted = inputs.goal.coupling == Coupling::Units;
    raise(inputs.denied.filter(|_| counted).map(|d| count(d.units(unit))), Why::Denied);
    best
}

/// The size, from everything. Total: any input gives a size within the bounds, or above them by denial alone.
#[must_use]
pub fn desired(inputs: &Inputs) -> Desired {
    let Inputs { unit, min, max, asked, .. } = *inputs;
    let (evidence, mut why) = floors(inputs);
    let range = Range { unit, min, max };
    let mut size = evidence.size(asked, &range);
    if inputs.turned && size.any_greater(evidence.coupling.size(evidence.grow, &range).max(min)) {
        why = Why::Turned;
    }
    if let Some(held) = inputs.hold {
        (size, why) = (held, Why::Hold);
    } else if !inputs.complete || inputs.settling {
        if asked.any_greater(size) {
            why = if inputs.complete { Why::Settling } else { Why::Blind };
        }
        size = size.max(asked);
    }
    if let Some(room) = inputs.room.filter(|room| inputs.hold.is_none() && size.any_greater(*room)) {
        (size, why) = (size.min(room), Why::Node);
    }
    size.mem = units::round_up_to_slot(size.mem, inputs.slot);
    if size.any_greater(max) && why != Why::Blind {
        why = Why::Maximum;
    }
    if size.any_less(min) {
        why = Why::Minimum;
    }
    size = size.min(max).max(min);
    let differs = |required: Resources| inputs.hold.is_none() && required.any_greater(inputs.goal.grow);
    let count = |units: u32| units::times(unit, units);
    let requested = inputs.requested.filter(|r| differs(count(r.units(unit)))).map(|r| r.until);
    let wanted = inputs.wanted.filter(|w| differs(w.size)).map(|w| w.until);
    let mut result = Desired {
        size,
        why,
        request_until: requested.into_iter().chain(wanted).min(),
        denied_until: inputs.denied.filter(|d| differs(count(d.units(unit)))).map(|d| d.until),
        above_max: false,
        evidence: inputs.hold.is_none().then_some(evidence),
    };
    if let Some(denied) = inputs.denied {
        // Above the maximum or a hold it keeps what is there. The size that the guest was requested to take
        // may be larger: patches whose result is unknown.
        let mut floor = denied.floor(unit).min(asked.max(inputs.now));
        floor.mem = units::round_up_to_slot(floor.mem, inputs.slot).min(denied.current.mem.max(size.mem));
        if inputs.hold.is_some() && inputs.forced {
            floor.vcpus = size.vcpus;
        }
        result.size = size.max(floor);
        if result.size != size {
            result.denied_until = Some(denied.until);
            result.why = Why::Denied;
        }
        result.above_max = result.size.any_greater(max);
    }
    result
}
