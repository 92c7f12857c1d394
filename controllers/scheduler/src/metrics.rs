//! Metrics, under the names of the upstream scheduler.

use std::time::Duration;

use neonvm_kit::metrics::{Counter, Family, Histogram, Registry};
/// Upper bounds of the histograms, in seconds.
const BOUNDS: [f64; 16] =
    [1e-5, 1e-4, 0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0, 20.0, 45.0];

/// All of them.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) registry: Registry,
    extension_calls: Family<Counter, 3>,
    extension_fails: Family<Counter, 4>,
    denied: Family<Counter, 2>,
    wrote: Family<Counter, 3>,
    migrations_created: Counter,
    migrations_deleted: Counter,
    panics: Family<Counter, 1>,
    watch_events: Family<Counter, 1>,
    watch_errors: Counter,
    requests: Family<Counter, 1>,
    results: Family<Counter, 2>,
    handled: Family<Histogram, 2>,
}

impl Default for Metrics {
    fn default() -> Self {
        let registry = Registry::new();
        Self {
            extension_calls: registry.counters(
                "autoscaling_plugin_extension_calls_total",
                "Calls of the extender.",
                ["method", "desired_availability_zone", "ignored_namespace"],
            ),
            extension_fails: registry.counters(
                "autoscaling_plugin_extension_call_fails_total",
                "Calls of the extender that were refused or failed.",
                ["method", "desired_availability_zone", "ignored_namespace", "status"],
            ),
            denied: registry.counters(
                "autoscaling_plugin_reserve_should_deny_total",
                "Bindings that were refused because the node had no room any more.",
                ["node", "ignored_namespace"],
            ),
            wrote: registry.counters(
                "autoscaling_plugin_k8s_ops_total",
                "Writes to the API server.",
                ["op", "kind", "outcome"],
            ),
            migrations_created: registry
                .counter("autoscaling_plugin_migrations_created_total", "Migrations that were created."),
            migrations_deleted: registry.counter(
                "autoscaling_plugin_migrations_deleted_total",
                "Migrations that had ended and were deleted.",
            ),
            panics: registry.counters(
                "autoscaling_plugin_reconcile_panics_count",
                "Requests whose handling ended in a panic.",
                ["kind"],
            ),
            watch_events: registry.counters(
                "autoscaling_plugin_watchers_events_total",
                "Changes that watches have shown.",
                ["watcher_instance"],
            ),
            watch_errors: registry
                .counter("autoscaling_plugin_watchers_errors_total", "Watches that were restarted."),
            requests: registry.counters(
                "autoscaling_plugin_resource_requests_total",
                "Requests of agents.",
                ["code"],
            ),
            results: registry.counters(
                "autoscaling_plugin_resource_requests_results_total",
                "Responses to agents, by node.",
                ["code", "node"],
            ),
            handled: registry.histograms(
                "autoscaling_plugin_reconcile_duration_seconds",
                "Time to take in what a watch has shown.",
                ["kind", "outcome"],
                &BOUNDS,
            ),
            registry,
        }
    }
}

const fn word(is: bool) -> &'static str {
    if is { "true" } else { "false" }
}

impl Metrics {
    /// An agent was answered.
    pub(crate) fn requested(&self, status: u16, node: Option<&str>) {
        let status = status.to_string();
        self.requests.with([&status]).inc();
        self.results.with([&status, node.unwrap_or("<none>")]).inc();
    }

    /// The extender was called.
    pub(crate) fn extension(&self, method: &str, ignored: bool, failed: Option<&str>) {
        if let Some(status) = failed {
            self.extension_fails.with([method, "", word(ignored), status]).inc();
        }
        self.extension_calls.with([method, "", word(ignored)]).inc();
    }

    /// A binding was refused.
    pub(crate) fn denied(&self, node: &str, ignored: bool) {
        self.denied.with([node, word(ignored)]).inc();
    }

    /// Something was written to the API server, or was to be.
    pub(crate) fn wrote(&self, op: &str, kind: &str, ok: bool) {
        self.wrote.with([op, kind, if ok { "success" } else { "error" }]).inc();
    }

    pub(crate) fn migration_created(&self) {
        self.migrations_created.inc();
    }

    pub(crate) fn migration_deleted(&self) {
        self.migrations_deleted.inc();
    }

    pub(crate) fn panicked(&self) {
        self.panics.with(["Request"]).inc();
    }

    pub(crate) fn watch_failed(&self) {
        self.watch_errors.inc();
    }

    /// What a watch has shown was taken in.
    pub(crate) fn handled(&self, kind: &'static str, took: Duration) {
        self.watch_events.with([kind]).inc();
        self.handled.with([kind, "success"]).observe(took);
    }
}

#[cfg(test)]
mod tests {
    use neonvm_types::scheduler_inspect::ResourceView;

    use super::*;
    use crate::metrics_page::resources;

    #[test]
    fn names_stay() {
        let metrics = Metrics::default();
        metrics.extension("Filter", false, Some("Error"));
        metrics.denied("n1", true);
        metrics.wrote("Patch", "VirtualMachine", true);
        metrics.panicked();
        metrics.handled("node", Duration::from_micros(10));
        metrics.requested(200, None);
        let mut page = metrics.registry.page();
        let labels =
            [("node", "n1"), ("zone", "a\"b")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        let cpu = ResourceView { total: 1500, ..ResourceView::default() };
        resources(&mut page, &[(labels.to_vec(), cpu, ResourceView::default())]);
        let text = page.finish();
        let families = [
            "autoscaling_plugin_extension_calls_total counter method desired_availability_zone ignored_namespace",
            "autoscaling_plugin_extension_call_fails_total counter method desired_availability_zone ignored_namespace status",
            "autoscaling_plugin_reserve_should_deny_total counter node ignored_namespace",
            "autoscaling_plugin_k8s_ops_total counter op kind outcome",
            "autoscaling_plugin_migrations_created_total counter",
            "autoscaling_plugin_migrations_deleted_total counter",
            "autoscaling_plugin_reconcile_panics_count counter kind",
            "autoscaling_plugin_watchers_events_total counter watcher_instance",
            "autoscaling_plugin_watchers_errors_total counter",
            "autoscaling_plugin_resource_requests_total counter code",
            "autoscaling_plugin_resource_requests_results_total counter code node",
            "autoscaling_plugin_reconcile_duration_seconds histogram kind outcome",
            "autoscaling_plugin_node_cpu_resources_current gauge node zone field",
            "autoscaling_plugin_node_mem_resources_current gauge node zone field",
        ];
        assert_eq!(neonvm_test_cluster::metrics::families(&text), families);
        for line in [
            "autoscaling_plugin_node_cpu_resources_current{node=\"n1\",zone=\"a\\\"b\",field=\"Total\"} 1.5\n",
            "autoscaling_plugin_reconcile_duration_seconds_bucket{kind=\"node\",outcome=\"success\",le=\"0.00001\"} 1\n",
            "autoscaling_plugin_resource_requests_results_total{code=\"200\",node=\"<none>\"} 1\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }
}
