//! The algorithm of Kubernetes' `HorizontalPodAutoscaler`, for predictions: the one that counts runs in the cluster.
//!
//! <https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/#algorithm-details>: replicas follow the
//! ratio of metric and target; pods that are not ready or give no value count as idle when more is required, and pods
//! without a value as at their target when less is required; if that reverses the direction, nothing changes.

use crate::{
    number::{Finite, ceil_replicas},
    want::Tolerance,
};

/// Pods of a workload, grouped by readiness and by whether their metric could be read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pods<'a> {
    /// Replicas that are ordered.
    pub current: i32,
    /// Values of ready pods.
    pub values: &'a [Finite],
    /// Pods that are not ready.
    pub unready: i32,
    /// Ready pods without a value.
    pub missing: i32,
}

/// Replicas for a metric that each pod has; `None` if no pod gave a value.
#[must_use]
pub fn replicas(pods: &Pods<'_>, target: Finite, tolerance: Tolerance) -> Option<i32> {
    let ready = f64::from(crate::number::count(pods.values.len()));
    if pods.values.is_empty() || target.get() <= 0.0 {
        return None;
    }
    let sum: f64 = pods.values.iter().map(|value| value.get() / target.get()).sum();
    let ratio = sum / ready;
    let up = ratio > 1.0;
    let (unready, missing) = (f64::from(pods.unready.max(0)), f64::from(pods.missing.max(0)));
    if missing <= 0.0 && (unready <= 0.0 || !up) {
        return Some(if close(ratio, tolerance) { pods.current } else { ceil_replicas(ratio * ready) });
    }
    let others = if up { unready + missing } else { missing };
    let filled = if up { sum } else { sum + missing };
    let all = ready + others;
    let adjusted = filled / all;
    let turned = (up && adjusted < 1.0) || (!up && adjusted > 1.0);
    if turned || close(adjusted, tolerance) {
        return Some(pods.current);
    }
    let replicas = ceil_replicas(adjusted * all);
    let back = (adjusted < 1.0 && replicas > pods.current) || (adjusted > 1.0 && replicas < pods.current);
    Some(if back { pods.current } else { replicas })
}

/// Replicas for the ratio of a metric and its target as the controller reports it. The ratio does not identify pods, so all
/// are assumed ready and measured.
#[must_use]
pub fn by_ratio(current: i32, ratio: f64, tolerance: Tolerance) -> i32 {
    if close(ratio, tolerance) { current } else { ceil_replicas(ratio * f64::from(current.max(0))) }
}

/// Whether a ratio is close enough to 1. A few units in the last place decide nothing.
fn close(ratio: f64, tolerance: Tolerance) -> bool {
    ratio <= 1.0 + tolerance.up + 1e-12 && ratio >= 1.0 - tolerance.down - 1e-12
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEN: Tolerance = Tolerance { up: 0.1, down: 0.1 };

    fn ask(current: i32, values: &[f64], unready: i32, missing: i32) -> Option<i32> {
        let values: Vec<Finite> = values.iter().map(|value| Finite::saturating(*value)).collect();
        replicas(&Pods { current, values: &values, unready, missing }, Finite::saturating(1.0), TEN)
    }

    #[test]
    fn replicas_follow_the_ratio() {
        assert_eq!(ask(3, &[2.0, 2.0, 2.0], 0, 0), Some(6));
        assert_eq!(ask(3, &[1.05, 1.05, 1.05], 0, 0), Some(3));
        assert_eq!(ask(4, &[0.5; 4], 0, 0), Some(2));
        assert_eq!(ask(4, &[], 0, 4), None);
    }

    #[test]
    fn a_ratio_alone_is_that_of_pods_that_are_all_ready() {
        for (current, ratio) in [(3, 2.0), (3, 1.05), (4, 0.5), (7, 1.3), (7, 0.0), (1, 1.11)] {
            let values = vec![ratio; usize::try_from(current).unwrap()];
            assert_eq!(Some(by_ratio(current, ratio, TEN)), ask(current, &values, 0, 0), "{current} {ratio}");
        }
        assert_eq!(by_ratio(0, 3.0, TEN), 0);
    }

    #[test]
    fn pods_that_are_not_there_count_for_staying() {
        // Two pods at three times the target, two starting: 6/4 instead of 6/2.
        assert_eq!(ask(4, &[3.0, 3.0], 2, 0), Some(6));
        // One and a half times the target, but a starting pod would bring it to 0.75: nothing.
        assert_eq!(ask(2, &[1.5], 1, 0), Some(2));
        // A third of the load, but one pod has no value: it counts as at its target.
        assert_eq!(ask(3, &[0.3, 0.3], 0, 1), Some(2));
        assert_eq!(ask(2, &[0.95], 0, 1), Some(2));
        // Fewer than there are although the ratio requires more: no change.
        assert_eq!(ask(10, &[1.5, 1.5], 0, 0), Some(3));
        assert_eq!(ask(10, &[1.5, 1.5], 0, 1), Some(10));
    }
}
