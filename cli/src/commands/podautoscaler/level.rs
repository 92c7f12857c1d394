//! From which load on there would be more or fewer replicas. Pure; the reverse of what
//! [`neonvm_core_pod_autoscaler::want::Load::wanted`] does, and tested against it.

use neonvm_api::pod_autoscaler::CurrentMetric;
use neonvm_core_pod_autoscaler::number::{ceil_replicas, floor_replicas, render};
use neonvm_core_pod_autoscaler::want::{Fleet, Rates, Tolerance};

/// A load at which the number of replicas changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Edge {
    /// The whole load, in units of the target.
    pub(super) load: f64,
    /// Whether that very load is beyond the edge, too.
    pub(super) inclusive: bool,
    /// Replicas just beyond it, within one step.
    pub(super) replicas: i32,
}

/// What a metric would have to be for more replicas. `None`: no load gives more before more pods are ready.
pub(super) fn up(target: f64, fleet: Fleet, tolerance: Tolerance, rates: Rates) -> Option<Edge> {
    let ordered = f64::from(fleet.current.max(0));
    let pods = ordered * (1.0 + tolerance.up);
    let wanted = floor_replicas(pods).saturating_add(1);
    let replicas = wanted.min(rates.ceiling(fleet));
    (replicas > fleet.current).then_some(Edge { load: pods * target, inclusive: false, replicas })
}

/// What a metric would have to be for fewer replicas. `None` if there are none.
pub(super) fn down(target: f64, fleet: Fleet, tolerance: Tolerance, rates: Rates) -> Option<Edge> {
    let fewer = fleet.current.checked_sub(1).filter(|fewer| *fewer >= 0)?;
    let tolerated = f64::from(fleet.ready.min(fleet.current).max(1)) * (1.0 - tolerance.down);
    let pods = tolerated.min(f64::from(fewer));
    let inclusive = pods < tolerated;
    let replicas = ceil_replicas(pods).max(rates.floor(fleet)).min(fewer);
    Some(Edge { load: pods * target, inclusive, replicas })
}

/// The load of the panic window above which there is panic.
pub(super) fn panic(target: f64, fleet: Fleet, threshold: f64) -> f64 {
    let pods = ceil_replicas(threshold * f64::from(fleet.ready.max(1)));
    f64::from(pods.saturating_sub(1)) * target
}

/// How a load is shown: for each pod, as a total, or as a percentage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// Of pods that were read: how many are ready.
    Each(i32),
    /// Not of pods: the whole load.
    Whole,
    /// A value that pods made together: how many are ready.
    Value(i32),
    /// Percent of the request: how many are ready.
    Percent(i32),
}

impl Unit {
    /// Of a metric as the status has it, with the replicas there.
    pub(super) fn from_metric(metric: &CurrentMetric, replicas: i32) -> Self {
        let ready = pods(metric).map_or(replicas, |(_, ready)| ready).max(1);
        if metric.target.average_utilization.is_some() {
            Self::Percent(ready)
        } else if metric.target.average_value.is_none() {
            Self::Value(ready)
        } else if metric.pods.is_some() {
            Self::Each(ready)
        } else {
            Self::Whole
        }
    }

    pub(super) fn show(self, load: f64) -> String {
        let share = |ready: i32| render(load / f64::from(ready));
        match self {
            Self::Each(1) | Self::Whole => format!("{} in total", render(load)),
            Self::Each(ready) => format!("{} per pod ({} in total)", share(ready), render(load)),
            Self::Value(ready) => share(ready),
            Self::Percent(ready) => format!("{}%", share(ready)),
        }
    }
}

pub(super) fn pods(metric: &CurrentMetric) -> Option<(i32, i32)> {
    let (sampled, ready) = metric.pods.as_deref()?.split_once('/')?;
    Some((sampled.parse().ok()?, ready.parse().ok()?))
}

/// What one replica should carry, above 0.
pub(super) fn target(metric: &CurrentMetric) -> Option<f64> {
    let of = &metric.target;
    let share = of.average_utilization.map(f64::from);
    let text = of.average_value.as_ref().or(of.value.as_ref());
    share
        .or_else(|| text.and_then(|text| text.parse().ok()))
        .filter(|target: &f64| target.is_finite() && *target > 0.0)
}

#[cfg(test)]
mod tests {
    use neonvm_core_pod_autoscaler::want::Load;
    use neonvm_core_pod_autoscaler::{Finite, apa};

    use super::*;

    fn decided(load: f64, target: f64, fleet: Fleet, tolerance: Tolerance, rates: Rates) -> i32 {
        let known = Load::known(Finite::saturating(load), Finite::saturating(target));
        apa::replicas(&known, fleet, tolerance, rates)
    }

    /// For every size of a workload: just before an edge nothing changes, just beyond it what the text announces.
    #[test]
    fn the_core_confirms_the_text() {
        let rates = Rates { up: 2.0, down: 2.0 };
        for target in [0.25, 1.0, 40.0] {
            for share in [0.0, 0.1, 0.25] {
                let tolerance = Tolerance { up: share, down: share };
                for (current, missing) in (0..60).flat_map(|current| [(current, 0), (current, current / 3)]) {
                    let fleet = Fleet { current, ready: current - missing };
                    let at = |load: f64| decided(load, target, fleet, tolerance, rates);
                    let near = target * 1e-4;
                    match up(target, fleet, tolerance, rates) {
                        Some(edge) => {
                            assert_eq!(at(edge.load - near), current.min(at(edge.load - near)), "{fleet:?}");
                            assert_eq!(at(edge.load + near), edge.replicas, "{fleet:?} {edge:?}");
                        }
                        None => assert_eq!(at(target * 1e6), current, "{fleet:?}"),
                    }
                    match down(target, fleet, tolerance, rates) {
                        Some(edge) => {
                            let beyond = if edge.inclusive { edge.load } else { edge.load - near };
                            assert!(at(edge.load + near) >= current, "{fleet:?} {edge:?}");
                            assert_eq!(at(beyond), edge.replicas, "{fleet:?} {edge:?}");
                        }
                        None => assert_eq!(current, 0),
                    }
                }
            }
        }
    }

    #[test]
    fn panic_begins_above_its_edge() {
        let fleet = Fleet { current: 3, ready: 3 };
        assert!((panic(40.0, fleet, 2.0) - 200.0).abs() < 1e-9);
        let pods = |load: f64| {
            let known = Load::known(Finite::saturating(load), Finite::saturating(40.0));
            f64::from(known.replicas(known.up)) / 3.0
        };
        assert!(pods(200.0) < 2.0 && pods(200.1) >= 2.0);
    }

    #[test]
    fn loads_are_shown_in_the_unit_of_their_targets() {
        assert_eq!(Unit::Each(3).show(132.0), "44 per pod (132 in total)");
        assert_eq!(Unit::Each(1).show(44.0), "44 in total");
        assert_eq!(
            (Unit::Whole.show(132.0), Unit::Percent(2).show(154.0)),
            ("132 in total".into(), "77%".into())
        );
        assert_eq!(Unit::Value(4).show(2.0), "0.5");
    }
}
