//! Knative's state machine: a stable window for calm times, a panic window for surges.
//!
//! ```text
//!             wanted by the panic window / ready ≥ threshold
//!   calm ───────────────────────────────────────────────────▶ panic (since T, most replicas so far M)
//!    ▲                                                          │ again over the threshold: T = now
//!    └──────────────────────────────────────────────────────────┘ not over it, and T + stable window is past
//! ```
//! In panic the answer is the largest so far within the rates, and not below what is ordered. A controller that starts
//! beside a workload with more than one ready pod starts in panic: what is there was needed a moment ago, and its windows
//! are empty.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::want::{Fleet, Load, Rates, Tolerance};

/// What is remembered between two decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Panic {
    /// When the threshold was last passed; `None` in calm times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Most replicas so far.
    #[serde(default)]
    pub most: i32,
}

/// What the VM goes by.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rules {
    /// Largest steps.
    pub rates: Rates,
    /// How far from the target is close enough.
    pub tolerance: Tolerance,
    /// Pods wanted for each ready pod from which there is panic.
    pub threshold: f64,
    /// Fewest replicas while there is any load.
    pub activation: i32,
    /// The stable window in seconds.
    pub stable_window: i64,
}

/// The result of the state machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KpaRecommendation {
    /// Replicas, within the rates.
    pub replicas: i32,
    /// Replicas that the stable window requires, before the rates.
    pub stable: i32,
    /// Replicas that the panic window requires, before the rates.
    pub panic: i32,
    /// Whether there is panic.
    pub panicking: bool,
}

impl Panic {
    /// The state of a controller that finds a workload.
    #[must_use]
    pub fn start(fleet: Fleet, now: Timestamp) -> Self {
        if fleet.ready > 1 {
            Self { since: Some(now), most: fleet.ready.max(fleet.current) }
        } else {
            Self::default()
        }
    }

    /// One decision from the loads of both windows.
    pub fn step(
        &mut self,
        stable: &Load,
        panic: &Load,
        fleet: Fleet,
        rules: &Rules,
        now: Timestamp,
    ) -> KpaRecommendation {
        let ready = fleet.ready.max(1);
        // Without a workload the base is one pod, and tolerances have nothing to be relative to.
        let (stable_wanted, panic_wanted) =
            (stable.wanted(fleet, rules.tolerance), panic.wanted(fleet, rules.tolerance));
        let limited = |load: &Load, wanted: i32| {
            let within = wanted.max(rules.rates.floor(fleet)).min(rules.rates.ceiling(fleet));
            if load.up.get() > 0.0 { within.max(rules.activation) } else { within }
        };
        let calm = limited(stable, stable_wanted);
        let surge = limited(panic, panic_wanted);
        let over = f64::from(panic.replicas(panic.up)) / f64::from(ready) >= rules.threshold;
        let window = SignedDuration::from_secs(rules.stable_window);
        let past = |since: Timestamp| now.duration_since(since) > window;
        if over {
            if self.since.is_none() {
                self.most = fleet.current;
            }
            self.since = Some(now);
        } else if self.since.is_some_and(past) {
            *self = Self::default();
        }
        let panicking = self.since.is_some();
        let replicas = if panicking {
            self.most = self.most.max(calm).max(surge).max(fleet.current);
            // What was allowed from more ready pods, and was not ordered, is not made up for in one step.
            self.most.min(rules.rates.ceiling(fleet)).max(calm).max(surge)
        } else {
            calm
        };
        KpaRecommendation { replicas, stable: stable_wanted, panic: panic_wanted, panicking }
    }
}
