//! Metrics of the autoscaler itself, in the text format of Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use neonvm_api::pod_autoscaler::ScalingStrategy;
use neonvm_core_podscale::{Decision, Settings};

use crate::picture::Key;

/// What a decision said, for the gauge of upstream.
#[derive(Clone, Debug)]
struct Said {
    algorithm: &'static str,
    reason: String,
    desired: i32,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Telemetry {
    said: Mutex<BTreeMap<Key, Said>>,
    turns: AtomicU64,
    /// Microseconds.
    turning: AtomicU64,
    rescales: AtomicU64,
    writes: AtomicU64,
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
    fn said(&self) -> std::sync::MutexGuard<'_, BTreeMap<Key, Said>> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn turn(&self, took: Duration) {
        self.turns.fetch_add(1, Ordering::Relaxed);
        self.turning.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// A status or a `HorizontalPodAutoscaler` was written.
    pub(crate) fn wrote(&self) {
        self.writes.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn decided(&self, key: &Key, settings: &Settings, decision: &Decision) {
        if decision.scales() {
            self.rescales.fetch_add(1, Ordering::Relaxed);
        }
        let algorithm = match settings.strategy {
            ScalingStrategy::Kpa => "kpa",
            ScalingStrategy::Apa => "apa",
            ScalingStrategy::Hpa => "hpa",
        };
        let said = Said { algorithm, reason: format!("{:?}", decision.reason), desired: decision.desired };
        self.said().insert(key.clone(), said);
    }

    pub(crate) fn forget(&self, key: &Key) {
        self.said().remove(key);
    }

    pub(crate) fn render(&self, others: Others) -> String {
        let mut out = String::new();
        let head = |out: &mut String, name: &str, kind: &str, help: &str| {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        };
        let name = "aibrix_autoscaler_scale_action";
        head(&mut out, name, "gauge", "Replicas that the last decision asked for.");
        for ((namespace, object), said) in self.said().iter() {
            let Said { algorithm, reason, desired } = said;
            let _ = writeln!(
                out,
                "{name}{{namespace=\"{namespace}\",name=\"{object}\",algorithm=\"{algorithm}\",reason=\"{reason}\"}} {desired}"
            );
        }
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        #[expect(clippy::cast_precision_loss, reason = "seconds for people")]
        let seconds = read(&self.turning) as f64 / 1e6;
        let numbers: [(&str, &str, &str, String); 8] = [
            (
                "neonvm_pod_autoscaler_objects",
                "gauge",
                "PodAutoscalers that are known.",
                others.objects.to_string(),
            ),
            (
                "neonvm_pod_autoscaler_queue_depth",
                "gauge",
                "PodAutoscalers that wait for a turn.",
                others.depth.to_string(),
            ),
            ("neonvm_pod_autoscaler_turns_total", "counter", "Turns.", read(&self.turns).to_string()),
            (
                "neonvm_pod_autoscaler_turn_seconds_total",
                "counter",
                "Time of all turns.",
                seconds.to_string(),
            ),
            (
                "neonvm_pod_autoscaler_rescales_total",
                "counter",
                "Decisions to change replicas.",
                read(&self.rescales).to_string(),
            ),
            (
                "neonvm_pod_autoscaler_writes_total",
                "counter",
                "Status and HorizontalPodAutoscalers written.",
                read(&self.writes).to_string(),
            ),
            (
                "neonvm_pod_autoscaler_scrapes_total",
                "counter",
                "Endpoints that were read.",
                others.scrapes.to_string(),
            ),
            (
                "neonvm_pod_autoscaler_scrape_failures_total",
                "counter",
                "Those of them that gave nothing.",
                others.failures.to_string(),
            ),
        ];
        for (name, kind, help, value) in numbers {
            head(&mut out, name, kind, help);
            let _ = writeln!(out, "{name} {value}");
        }
        out
    }
}
