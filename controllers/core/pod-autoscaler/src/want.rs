//! From a load to a number of replicas: what all strategies share.
//!
//! A load is the whole of it in units of the target: of a metric for each pod the sum over pods, of a metric with a
//! target for its own value that value times the pods that made it. A load does not change because pods are added, so
//! its average over a window stays right while the workload scales. (Averages of *one pod's* value lag behind: with
//! them, each step up multiplies a value from before the step, and the workload overshoots.)

use serde::{Deserialize, Serialize};

use crate::number::{Finite, ceil_replicas, floor_replicas};

/// The workload as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fleet {
    /// Replicas that are ordered.
    pub current: i32,
    pub ready: i32,
}

impl Fleet {
    /// All replicas are ready.
    #[must_use]
    pub const fn all_ready(current: i32) -> Self {
        Self { current, ready: current }
    }
}

/// Largest steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rates {
    /// Largest factor of one step up, above 1.
    pub up: f64,
    /// Largest divisor of one step down, above 1.
    pub down: f64,
}

impl Rates {
    /// Most replicas after one step. While pods are starting, the ready ones are what it is a factor of: a second
    /// doubling must wait for the first to arrive. What is ordered already is never taken back by this.
    #[must_use]
    pub fn ceiling(&self, fleet: Fleet) -> i32 {
        let base = fleet.ready.min(fleet.current).max(1);
        ceil_replicas(self.up * f64::from(base)).max(fleet.current)
    }

    /// Fewest replicas after one step.
    #[must_use]
    pub fn floor(&self, fleet: Fleet) -> i32 {
        floor_replicas(f64::from(fleet.current.max(0)) / self.down).min(fleet.current)
    }
}

/// How far from the target is close enough.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tolerance {
    /// Relative excess, from 0.
    pub up: f64,
    /// Relative shortfall, from 0 to below 1.
    pub down: f64,
}

impl Tolerance {
    /// None.
    pub const NONE: Self = Self { up: 0.0, down: 0.0 };
}

/// At the border of a tolerance, the last places of a sum decide nothing.
const NOISE: f64 = 1e-9;

/// A load with a target, and how sure it is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Load {
    /// The load that is used when more is required.
    pub up: Finite,
    /// The load that is used when less is required, not below the other.
    pub down: Finite,
    /// What one replica should carry, above 0.
    pub target: Finite,
}

impl Load {
    /// A load that was read of all pods.
    #[must_use]
    pub const fn known(load: Finite, target: Finite) -> Self {
        Self { up: load, down: load, target }
    }

    /// A load that was read of a share of the ready pods only (`coverage`, above 0 to 1) and filled up as if the others
    /// carried the same. For less, the others are counted with at least their target; for more, with zero (as
    /// Kubernetes does), or as they were filled up if `trusting` (as Knative does).
    #[must_use]
    pub fn partial(load: Finite, target: Finite, ready: i32, coverage: f64, trusting: bool) -> Self {
        if coverage >= 1.0 {
            return Self::known(load, target);
        }
        let seen = load.get() * coverage.clamp(0.0, 1.0);
        let unseen = (f64::from(ready.max(0)) * (1.0 - coverage) * target.get()).max(load.get() - seen);
        let up = if trusting { load } else { Finite::saturating(seen) };
        Self { up, down: Finite::saturating(seen + unseen).max(up), target }
    }

    /// Replicas for the load with each at its target.
    #[must_use]
    pub fn replicas(&self, load: Finite) -> i32 {
        // Divided, not multiplied: the results of upstream's vectors depend on it.
        ceil_replicas(load.get() / self.target.get())
    }

    /// Replicas wanted. More, only if the load is above what those ordered can carry; fewer, only if it is below what
    /// those ready can carry, each by more than is tolerated; the same otherwise.
    #[must_use]
    pub fn wanted(&self, fleet: Fleet, tolerance: Tolerance) -> i32 {
        let (more, fewer) = (self.replicas(self.up), self.replicas(self.down));
        let ordered = f64::from(fleet.current.max(0));
        // Of those ready no more count than are ordered: some may be on their way out.
        let ready = f64::from(fleet.ready.min(fleet.current).max(1));
        let above = self.up.get() / self.target.get() > ordered * (1.0 + tolerance.up) * (1.0 + NOISE);
        let below = self.down.get() / self.target.get() < ready * (1.0 - tolerance.down) * (1.0 - NOISE);
        if above && more > fleet.current {
            more
        } else if below && fewer < fleet.current {
            fewer
        } else {
            fleet.current
        }
    }
}
