//! Metrics of the autoscaler itself.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use neonvm_api::pod_autoscaler::ScalingStrategy;
use neonvm_core_pod_autoscaler::{Decision, Settings};
use neonvm_kit::expiry::Expiry;
use neonvm_kit::metrics::{Counter, Kind, Page, Registry, double};

use crate::cache::Key;

/// The last decision about an object, for upstream's gauge.
#[derive(Clone, Debug)]
struct LastDecision {
    algorithm: &'static str,
    reason: String,
    desired: i32,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Telemetry {
    decisions: Mutex<BTreeMap<Key, LastDecision>>,
    registry: Registry,
    turns: Counter,
    turning: Counter,
    rescales: Counter,
    writes: Counter,
    pub(crate) certificates: Expiry,
}

impl Default for Telemetry {
    fn default() -> Self {
        let registry = Registry::new();
        Self {
            decisions: Mutex::default(),
            turns: registry.counter("neonvm_pod_autoscaler_turns_total", "Reconciles."),
            turning: registry.counter("neonvm_pod_autoscaler_turn_seconds_total", "Time of all reconciles."),
            rescales: registry
                .counter("neonvm_pod_autoscaler_rescales_total", "Decisions to change replicas."),
            writes: registry.counter(
                "neonvm_pod_autoscaler_writes_total",
                "Status and HorizontalPodAutoscalers written.",
            ),
            certificates: Expiry::new(&registry),
            registry,
        }
    }
}

/// Counted elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Others {
    pub(crate) objects: usize,
    pub(crate) depth: usize,
    pub(crate) scrapes: u64,
    pub(crate) failures: u64,
}

impl Telemetry {
    fn decisions(&self) -> std::sync::MutexGuard<'_, BTreeMap<Key, LastDecision>> {
        self.decisions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn turn(&self, took: Duration) {
        self.turns.inc();
        self.turning.add(took.as_secs_f64());
    }

    /// A status or a `HorizontalPodAutoscaler` was written.
    pub(crate) fn wrote(&self) {
        self.writes.inc();
    }

    pub(crate) fn decided(&self, key: &Key, settings: &Settings, decision: &Decision) {
        if decision.scales() {
            self.rescales.inc();
        }
        let algorithm = match settings.strategy {
            ScalingStrategy::Kpa => "kpa",
            ScalingStrategy::Apa => "apa",
            ScalingStrategy::Hpa => "hpa",
        };
        let last =
            LastDecision { algorithm, reason: format!("{:?}", decision.reason), desired: decision.desired };
        self.decisions().insert(key.clone(), last);
    }

    pub(crate) fn forget(&self, key: &Key) {
        self.decisions().remove(key);
    }

    /// A page with all of it.
    pub(crate) fn page(&self, others: Others) -> Page {
        let mut page = self.registry.page();
        let help = "Replicas that the last decision asked for.";
        page.family("aibrix_autoscaler_scale_action", Kind::Gauge, help);
        for ((namespace, name), LastDecision { algorithm, reason, desired }) in self.decisions().iter() {
            let labels = [
                ("namespace", &**namespace),
                ("name", &**name),
                ("algorithm", algorithm),
                ("reason", reason),
            ];
            page.sample(&labels, f64::from(*desired));
        }
        for (name, kind, help, value) in [
            (
                "neonvm_pod_autoscaler_objects",
                Kind::Gauge,
                "PodAutoscalers that are known.",
                others.objects as u64,
            ),
            (
                "neonvm_pod_autoscaler_queue_depth",
                Kind::Gauge,
                "PodAutoscalers that wait for a reconcile.",
                others.depth as u64,
            ),
            (
                "neonvm_pod_autoscaler_scrapes_total",
                Kind::Counter,
                "Endpoints that were read.",
                others.scrapes,
            ),
            (
                "neonvm_pod_autoscaler_scrape_failures_total",
                Kind::Counter,
                "Those of them that gave nothing.",
                others.failures,
            ),
        ] {
            page.single(name, kind, help, double(value));
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use neonvm_kit::expiry::Use;

    use super::*;

    #[test]
    fn names_stay() {
        let telemetry = Telemetry::default();
        telemetry.turn(Duration::from_millis(1500));
        let validity = neonvm_kit::certificate::Validity { from: 0, until: 1, spread: 0 };
        telemetry.certificates.set("neonvm-pod-autoscaler", Use::Server, validity);
        let last = LastDecision { algorithm: "kpa", reason: "A \"reason\"".into(), desired: 3 };
        telemetry.decisions().insert(("default".into(), "p".into()), last);
        let text = telemetry.page(Others { scrapes: 7, ..Others::default() }).finish();
        let families = [
            "neonvm_pod_autoscaler_turns_total counter",
            "neonvm_pod_autoscaler_turn_seconds_total counter",
            "neonvm_pod_autoscaler_rescales_total counter",
            "neonvm_pod_autoscaler_writes_total counter",
            "neonvm_certificate_expiry_timestamp_seconds gauge certificate purpose",
            "neonvm_certificate_lifetime_seconds gauge certificate purpose",
            "aibrix_autoscaler_scale_action gauge namespace name algorithm reason",
            "neonvm_pod_autoscaler_objects gauge",
            "neonvm_pod_autoscaler_queue_depth gauge",
            "neonvm_pod_autoscaler_scrapes_total counter",
            "neonvm_pod_autoscaler_scrape_failures_total counter",
        ];
        assert_eq!(neonvm_test_cluster::metrics::families(&text), families);
        for line in [
            "neonvm_pod_autoscaler_turn_seconds_total 1.5\n",
            "neonvm_pod_autoscaler_scrapes_total 7\n",
            "algorithm=\"kpa\",reason=\"A \\\"reason\\\"\"} 3\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }
}
