//! The ratio of load and target, with a tolerance on each side and a limit on each step.

use crate::{
    number::Finite,
    want::{Fleet, Load, Rates, Tolerance},
};

/// Replicas for a load: within the tolerances the same, otherwise what the load requires, within the rates.
#[must_use]
pub fn replicas(load: &Load, fleet: Fleet, tolerance: Tolerance, rates: Rates) -> i32 {
    let wanted = load.wanted(fleet, tolerance);
    if wanted > fleet.current { wanted.min(rates.ceiling(fleet)) } else { wanted.max(rates.floor(fleet)) }
}

/// The load of a workload whose pods each show `value` on average. The ratio is taken first, which is what decides at
/// the borders of the tolerances.
#[must_use]
pub fn load_of_average(current: i32, value: f64, target: f64) -> Load {
    let ratio = value / target;
    Load::known(Finite::saturating(f64::from(current) * ratio), Finite::saturating(1.0))
}
