//! Metrics in the text format of Prometheus.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

/// The metrics.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) peers: AtomicU64,
    pub(crate) machines: AtomicU64,
    pub(crate) changes: AtomicU64,
    pub(crate) failures: AtomicU64,
    pub(crate) runs: AtomicU64,
}

impl Metrics {
    pub(crate) fn render(&self) -> String {
        let mut out = String::new();
        for (name, kind, help, value) in [
            ("neonvm_overlay_peers", "gauge", "Other nodes that broadcasts go to.", &self.peers),
            ("neonvm_overlay_machines", "gauge", "VMs on other nodes that are known.", &self.machines),
            ("neonvm_overlay_changes_total", "counter", "Changes of the forwarding table.", &self.changes),
            (
                "neonvm_overlay_runs_total",
                "counter",
                "Comparisons of what is with what should be.",
                &self.runs,
            ),
            (
                "neonvm_overlay_failures_total",
                "counter",
                "Comparisons that ended in an error.",
                &self.failures,
            ),
        ] {
            let value = value.load(Ordering::Relaxed);
            // Writing to a string cannot fail.
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
        }
        out
    }
}
