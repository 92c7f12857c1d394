//! Metrics, under the names of the upstream scheduler.

use std::time::Duration;

use neonvm_kit::expiry::Expiry;
use neonvm_kit::metrics::{Counter, Family, Gauge, Histogram, Registry};
use neonvm_kit::watch_metrics::WatchMetrics;

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
    create_fails: Counter,
    delete_fails: Counter,
    panics: Family<Counter, 1>,
    pub(crate) watches: WatchMetrics,
    waited: Histogram,
    failing: Family<Gauge, 1>,
    requests: Family<Counter, 1>,
    results: Family<Counter, 2>,
    handled: Family<Histogram, 2>,
    pub(crate) certificates: Expiry,
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
            create_fails: registry.counter(
                "autoscaling_plugin_migration_create_fails_total",
                "Migrations that could not be created.",
            ),
            delete_fails: registry.counter(
                "autoscaling_plugin_migration_delete_fails_total",
                "Migrations that had ended and could not be deleted.",
            ),
            panics: registry.counters(
                "autoscaling_plugin_reconcile_panics_count",
                "Requests whose handling ended in a panic.",
                ["kind"],
            ),
            watches: WatchMetrics::new(&registry, &neonvm_kit::watch_names!("autoscaling_plugin_watchers")),
            waited: registry.histogram(
                "autoscaling_plugin_reconcile_queue_wait_durations",
                "Time from the arrival of what a watch has shown to its being taken in.",
                &BOUNDS,
            ),
            failing: registry.gauges(
                "autoscaling_plugin_reconcile_failing_objects",
                "Objects whose labels or annotations cannot be read.",
                ["kind"],
            ),
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
            handled: handled(&registry),
            certificates: Expiry::new(&registry),
            registry,
        }
    }
}

fn handled(registry: &Registry) -> Family<Histogram, 2> {
    registry.histograms(
        "autoscaling_plugin_reconcile_duration_seconds",
        "Time to take in what a watch has shown.",
        ["kind", "outcome"],
        &BOUNDS,
    )
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

    /// The extender was called, for a pod that wants this availability zone.
    pub(crate) fn extension(&self, method: &str, zone: &str, ignored: bool, failed: Option<&str>) {
        if let Some(status) = failed {
            self.extension_fails.with([method, zone, word(ignored), status]).inc();
        }
        self.extension_calls.with([method, zone, word(ignored)]).inc();
    }

    /// A binding was refused.
    pub(crate) fn denied(&self, node: &str, ignored: bool) {
        self.denied.with([node, word(ignored)]).inc();
    }

    /// Something was written to the API server, or was to be.
    pub(crate) fn wrote(&self, op: &str, kind: &str, ok: bool) {
        self.wrote.with([op, kind, if ok { "success" } else { "error" }]).inc();
        match (op, kind, ok) {
            ("Create", "VirtualMachineMigration", false) => self.create_fails.inc(),
            ("Delete", "VirtualMachineMigration", false) => self.delete_fails.inc(),
            _ => {}
        }
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

    /// What a watch has shown was taken in, after it has waited. It failed if a part of the object cannot be read.
    pub(crate) fn handled(&self, kind: &'static str, waited: Duration, took: Duration, ok: bool) {
        self.waited.observe(waited);
        self.handled.with([kind, if ok { "success" } else { "failure" }]).observe(took);
    }

    /// Pods of which a part cannot be read now.
    pub(crate) fn failing(&self, pods: u64) {
        self.failing.with(["Pod"]).set(pods as f64);
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use neonvm_kit::expiry::Use;
    use neonvm_types::scheduler_inspect::ResourceView;

    use super::*;
    use crate::metrics_page::resources;

    /// Something in every family.
    fn full() -> String {
        let metrics = Metrics::default();
        metrics.extension("Filter", "a", false, Some("Error"));
        metrics.denied("n1", true);
        metrics.wrote("Patch", "VirtualMachine", true);
        metrics.panicked();
        metrics.handled("node", Duration::ZERO, Duration::from_micros(10), true);
        metrics.failing(1);
        for shown in [Event::Init, Event::Init, Event::Apply(1)] {
            metrics.watches.observe("Pod", &Ok(shown));
        }
        metrics.watches.observe::<()>("Pod", &Err(kube::runtime::watcher::Error::NoResourceVersion));
        metrics.requested(200, None);
        let validity = neonvm_kit::certificate::Validity { from: 0, until: 1, spread: 0 };
        metrics.certificates.set("neonvm-scheduler", Use::Server, validity);
        let mut page = metrics.registry.page();
        let labels =
            [("node", "n1"), ("zone", "a\"b")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        let cpu = ResourceView { total: 1500, ..ResourceView::default() };
        resources(&mut page, &[(labels.to_vec(), cpu, ResourceView::default())]);
        page.finish()
    }

    #[test]
    fn names_stay() {
        let text = full();
        let families = [
            "autoscaling_plugin_extension_calls_total counter method desired_availability_zone ignored_namespace",
            "autoscaling_plugin_extension_call_fails_total counter method desired_availability_zone ignored_namespace status",
            "autoscaling_plugin_reserve_should_deny_total counter node ignored_namespace",
            "autoscaling_plugin_k8s_ops_total counter op kind outcome",
            "autoscaling_plugin_migrations_created_total counter",
            "autoscaling_plugin_migrations_deleted_total counter",
            "autoscaling_plugin_migration_create_fails_total counter",
            "autoscaling_plugin_migration_delete_fails_total counter",
            "autoscaling_plugin_reconcile_panics_count counter kind",
            "autoscaling_plugin_watchers_client_calls_total counter watcher_instance method",
            "autoscaling_plugin_watchers_relist_requests_total counter watcher_instance",
            "autoscaling_plugin_watchers_events_total counter watcher_instance type",
            "autoscaling_plugin_watchers_errors_total counter watcher_instance source",
            "autoscaling_plugin_watchers_alive_current gauge watcher_instance",
            "autoscaling_plugin_watchers_failing_current gauge watcher_instance",
            "autoscaling_plugin_reconcile_queue_wait_durations histogram",
            "autoscaling_plugin_reconcile_failing_objects gauge kind",
            "autoscaling_plugin_resource_requests_total counter code",
            "autoscaling_plugin_resource_requests_results_total counter code node",
            "autoscaling_plugin_reconcile_duration_seconds histogram kind outcome",
            "neonvm_certificate_expiry_timestamp_seconds gauge certificate purpose",
            "neonvm_certificate_lifetime_seconds gauge certificate purpose",
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

    /// The table of the README against what is served.
    #[test]
    fn the_table_of_upstream_s_names_is_true() {
        let text = full();
        let served = neonvm_test_cluster::metrics::families(&text);
        let mut rows = 0;
        for line in include_str!("../README.md").lines() {
            let Some((name, here)) =
                line.strip_prefix("| `autoscaling_plugin_").and_then(|rest| rest.split_once("` | "))
            else {
                continue;
            };
            rows += 1;
            let name = format!("autoscaling_plugin_{name}");
            let is_served = served.iter().any(|family| family.split(' ').next() == Some(&name));
            let claimed = here.starts_with("the same");
            assert!(claimed || here.starts_with("none: "), "{line}");
            assert_eq!(is_served, claimed, "{line}");
        }
        assert!(rows > 20, "{rows}");
    }
}
