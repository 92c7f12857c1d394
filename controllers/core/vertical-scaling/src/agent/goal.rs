//! How many compute units the metrics want.
//!
//! `goal = ceil(max(round(cpu), memory, file cache, user metric))`, each part in compute units.

use neonvm_api::UserMetric;
use neonvm_types::{Bytes, MilliCpu, Resources};
use serde::Serialize;

use crate::agent::{
    evidence::{Coupling, Evidence},
    lfc,
    metrics::{LfcMetrics, SystemMetrics},
    settings::Config,
    units::{self, ceil_units},
    usage::{self, CpuNeed},
};

/// Parts of a goal in compute units; `None` where the metric is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct GoalParts {
    /// Load.
    pub cpu: Option<f64>,
    /// Memory, with and without file cache.
    pub mem: Option<f64>,
    /// File cache.
    pub lfc: Option<f64>,
    /// The user's own metric.
    pub user: Option<f64>,
}

/// A goal and what it was made from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Goal {
    /// Compute units; 0 without any metric.
    pub units: u32,
    /// The goal of each metric.
    pub parts: GoalParts,
    /// The same for each resource.
    pub evidence: Evidence,
    /// Whether every metric that is configured is there.
    pub complete: bool,
    /// Whether the file cache's series is too short to count.
    pub short_series: bool,
    /// Working set of the file cache, in bytes.
    pub working_set: Option<f64>,
}

/// What the goal is made from.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// Load and memory.
    pub system: Option<&'a SystemMetrics>,
    /// File cache.
    pub lfc: Option<&'a LfcMetrics>,
    /// The user's metric and its target per compute unit.
    pub user: Option<&'a UserMetric>,
    /// What the use of the CPU calls for. With [`CpuNeed::Unknown`] load alone decides.
    pub usage: CpuNeed,
    /// How CPU and memory go together.
    pub coupling: Coupling,
    /// The requested size.
    pub asked: Resources,
    /// The lower bound.
    pub min: Resources,
}

/// Load in compute units. Close to the five-minute average that one counts (stable zone), far from it the one-minute
/// average, and in between (mixed zone) a blend of both.
#[must_use]
pub fn cpu_units(load1: f64, load5: f64, config: &Config, unit: Resources) -> f64 {
    let stable = config.cpu_stable_zone * load5;
    let mixed = stable + config.cpu_mixed_zone * load5;
    let apart = (load1 - load5).abs();
    let weight = if apart <= stable {
        0.0
    } else if apart >= mixed {
        1.0
    } else {
        // The small summand keeps the divisor above zero.
        (apart - stable) / (mixed - stable + 1e-6)
    };
    let load = weight * load1 + (1.0 - weight) * load5;
    load / config.load_target / unit.vcpus.as_f64()
}

#[allow(clippy::cast_precision_loss, reason = "a compute unit has far fewer than 2^53 bytes")]
fn bytes(unit: Resources) -> f64 {
    unit.mem.get() as f64
}

/// Memory in compute units: in use against its target, and in use with as much page cache as the file cache's working
/// set explains against the target for both.
#[must_use]
pub fn mem_units(system: &SystemMetrics, working_set: Option<f64>, config: &Config, unit: Resources) -> f64 {
    let used = (system.memory_usage_bytes / config.memory_usage_target).round() / bytes(unit);
    working_set.map_or(used, |set| {
        let cached = set.trunc().min(system.memory_cached_bytes);
        let total = (cached + system.memory_usage_bytes) / config.memory_total_target / bytes(unit);
        used.max(total)
    })
}

/// What each resource needs by itself.
fn each(inputs: &Inputs<'_>, parts: &GoalParts, load: f64, unit: Resources) -> Evidence {
    let Inputs { usage, asked, min, .. } = *inputs;
    // Whole units, unless the lower bound is enough.
    let mem_units = [parts.mem, parts.lfc, parts.user].into_iter().flatten().fold(0.0, f64::max);
    let is_enough = mem_units * bytes(unit) <= bytes(Resources { mem: min.mem, ..unit });
    let mem = if is_enough { Bytes::ZERO } else { units::times(unit, ceil_units(mem_units)).mem };
    let user = units::times(unit, ceil_units(parts.user.unwrap_or(0.0))).vcpus;
    let by_load = units::times(unit, ceil_units(load.round())).vcpus;
    let (has, _) = units::ceil_each(asked, unit);
    let none = MilliCpu::ZERO;
    let (grow, keep) = match usage {
        CpuNeed::Unknown => (by_load, none),
        CpuNeed::Pending => (none, asked.vcpus),
        // One unit at a time: what is used with it shows whether more is needed.
        CpuNeed::Saturated if by_load <= asked.vcpus => (asked.vcpus, none),
        CpuNeed::Saturated => (by_load.min(units::times(unit, has.saturating_add(1)).vcpus), none),
        CpuNeed::Enough(cpu) => (none, units::fit(Resources::new(cpu, Bytes::ZERO), unit, min).vcpus),
    };
    // What was needed before the CPU changed shows in the next scrapes; until then memory stays with it.
    let kept = if usage == CpuNeed::Pending { asked.mem } else { Bytes::ZERO };
    let grow = Resources::new(grow.max(user), mem);
    Evidence { grow, keep: grow.max(Resources::new(keep, kept)), coupling: Coupling::Bounds }
}

/// Computes the goal from the metrics, in compute units.
#[must_use]
pub fn goal(inputs: Inputs<'_>, config: &Config, unit: Resources) -> Goal {
    let working_set = inputs.lfc.map(|lfc| lfc::working_set_bytes(&lfc.windows, config));
    let set = working_set.flatten();
    let user = inputs
        .user
        .and_then(|metric| inputs.system.and_then(|s| s.user).map(|value| (value / metric.target).max(0.0)));
    let load = inputs.system.map(|s| cpu_units(s.load1, s.load5, config, unit));
    let (has, _) = units::ceil_each(inputs.asked, unit);
    let parts = GoalParts {
        cpu: load.map(|load| usage::cpu_units(load, inputs.usage, has, unit.vcpus)),
        mem: inputs.system.map(|s| mem_units(s, set, config, unit)),
        // A series that is too short counts as present, with nothing in it.
        lfc: working_set.map(|set| set.unwrap_or(0.0) / config.lfc_to_memory / bytes(unit)),
        user,
    };
    // `f64::max` drops what is no number. `f64::round` rounds half away from zero.
    let cpu = parts.cpu.unwrap_or(0.0).round();
    let rest = [parts.mem, parts.lfc, parts.user].into_iter().flatten();
    let count = ceil_units(rest.fold(cpu, f64::max));
    let evidence = match inputs.coupling {
        Coupling::Bounds => each(&inputs, &parts, load.unwrap_or_default(), unit),
        Coupling::Units => Evidence::of_units(unit, count),
    };
    Goal {
        units: count,
        parts,
        evidence,
        complete: inputs.system.is_some()
            && (!config.lfc || inputs.lfc.is_some())
            && (inputs.user.is_none() || user.is_some()),
        short_series: working_set.is_some_and(|set| set.is_none()),
        working_set: set,
    }
}
