//! Metrics of the overlay network's forwarding on this node.

use neonvm_kit::metrics::{Counter, Gauge, Page, Registry};

#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    pub(crate) peers: Gauge,
    pub(crate) machines: Gauge,
    pub(crate) keyless: Gauge,
    pub(crate) changes: Counter,
    pub(crate) runs: Counter,
    pub(crate) failures: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        let registry = Registry::new();
        Self {
            peers: registry.gauge("neonvm_overlay_peers", "Other nodes that broadcasts go to."),
            machines: registry.gauge("neonvm_overlay_machines", "VMs on other nodes that are known."),
            keyless: registry.gauge(
                "neonvm_overlay_keyless_nodes",
                "With encryption: other nodes that are not reached, because they have published no key.",
            ),
            changes: registry.counter("neonvm_overlay_changes_total", "Changes of the forwarding table."),
            runs: registry
                .counter("neonvm_overlay_runs_total", "Comparisons of observed with desired state."),
            failures: registry
                .counter("neonvm_overlay_failures_total", "Comparisons that ended in an error."),
            registry,
        }
    }
}

impl Metrics {
    /// A page with all of it.
    pub(crate) fn page(&self) -> Page {
        self.registry.page()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay() {
        let families = [
            "neonvm_overlay_peers gauge",
            "neonvm_overlay_machines gauge",
            "neonvm_overlay_keyless_nodes gauge",
            "neonvm_overlay_changes_total counter",
            "neonvm_overlay_runs_total counter",
            "neonvm_overlay_failures_total counter",
        ];
        let text = Metrics::default().page().finish();
        assert_eq!(neonvm_test_cluster::metrics::families(&text), families);
    }
}
