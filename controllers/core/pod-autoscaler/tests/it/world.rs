//! Objects, and an autoscaler that is watched through time.

use jiff::{Timestamp, ToSpan};
use neonvm_api::PodAutoscaler;
pub(crate) use neonvm_api::merge_patch::merge;
use neonvm_core_pod_autoscaler::{
    Decision, Memory, MetricMemory, Observation, Observed, Settings, decide, window::Window,
};
use serde_json::{Value, json};

/// A sound autoscaler with a patch of its spec applied. Its windows are as short as its period, so that every value
/// counts by itself when time advances by more than that.
pub(crate) fn object(spec: &Value) -> PodAutoscaler {
    annotated(spec, &[])
}

/// The same, with annotations of our own prefix.
pub(crate) fn annotated(spec: &Value, annotations: &[(&str, &str)]) -> PodAutoscaler {
    let mut object = json!({
        "apiVersion": "autoscaling.aibrix.ai/v1alpha1", "kind": "PodAutoscaler",
        "metadata": {"name": "pa", "namespace": "ns", "uid": "u-pa", "generation": 3, "annotations": {}},
        "spec": {
            "scalingStrategy": "APA", "minReplicas": 1, "maxReplicas": 1000,
            "observeWindowSeconds": 10, "panicWindowSeconds": 10,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
            "metricsSources": [{"metricSourceType": "custom", "targetMetric": "m", "targetValue": "10"}],
        },
    });
    merge(&mut object["spec"], spec);
    for (key, value) in annotations {
        object["metadata"]["annotations"][format!("autoscaling.aibrix.ai/{key}")] = json!(value);
    }
    serde_json::from_value(object).unwrap()
}

/// Nothing is held back, nothing is tolerated, steps are as large as Knative's.
pub(crate) const FREE: [(&str, &str); 6] = [
    ("scale-down-cooldown-window", "0s"),
    ("scale-up-tolerance", "0"),
    ("scale-down-tolerance", "0"),
    ("max-scale-up-rate", "1000"),
    ("max-scale-down-rate", "1000"),
    ("panic-threshold", "2"),
];

pub(crate) fn settings(object: &PodAutoscaler) -> Settings {
    Settings::from_object(object).unwrap().0
}

pub(crate) fn start() -> Timestamp {
    "2026-08-03T12:00:00Z".parse().unwrap()
}

/// An autoscaler in time.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub settings: Settings,
    pub memory: Memory,
    pub now: Timestamp,
}

impl World {
    /// One that has just been started.
    pub(crate) fn fresh(object: &PodAutoscaler) -> Self {
        Self { settings: settings(object), memory: Memory::default(), now: start() }
    }

    /// One that has watched its metrics for long, in calm times; its windows are empty.
    pub(crate) fn warm(object: &PodAutoscaler) -> Self {
        let mut world = Self::fresh(object);
        world.memory.latest = Some(world.now);
        let since = Some(world.now.checked_sub(2.hours()).unwrap());
        let remember = |key: &String| MetricMemory { key: key.clone(), since, ..MetricMemory::default() };
        world.memory.metrics = world.settings.metrics.iter().map(|metric| remember(&metric.key)).collect();
        world
    }

    /// Fills the window of the first metric with a load, one value each period.
    pub(crate) fn filled(object: &PodAutoscaler, load: f64) -> Self {
        let mut world = Self::warm(object);
        let mut window = Window::default();
        let end = world.now.as_second();
        for second in ((end - world.settings.stable_window)..=end).step_by(10) {
            window.record(second, neonvm_core_pod_autoscaler::Finite::new(load).unwrap(), 3600);
        }
        world.memory.metrics[0].window = window;
        world
    }

    pub(crate) fn wait(&mut self, seconds: i64) -> &mut Self {
        self.now = self.now.checked_add(seconds.seconds()).unwrap();
        self
    }

    pub(crate) fn see(&mut self, current: i32, ready: i32, metrics: Vec<Observed>) -> Decision {
        let observation = Observation { current, ready: Some(ready), metrics };
        decide(&self.settings, &mut self.memory, &observation, self.now)
    }

    /// One decision about pods that are all ready and each show `value`.
    pub(crate) fn mean(&mut self, current: i32, value: f64) -> Decision {
        self.see(current, current, vec![Observed::pods(&vec![value; usize::try_from(current).unwrap()])])
    }

    /// One decision about a whole load, all pods ready.
    pub(crate) fn whole(&mut self, current: i32, value: f64) -> Decision {
        self.see(current, current, vec![Observed::total(value)])
    }
}

/// One external metric with a target for each pod.
pub(crate) fn external(target: &str) -> Value {
    json!({"metricsSources": [{"metricSourceType": "external", "targetMetric": "m", "targetValue": target}]})
}
