//! Metrics in the text format of Prometheus, under the names of the upstream scheduler.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use neonvm_types::scheduler_inspect::ResourceView;

use crate::shared::Shared;

/// Upper ends of the histograms, in seconds.
const ENDS: [f64; 16] =
    [1e-5, 1e-4, 0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0, 20.0, 45.0];

/// A histogram.
#[derive(Clone, Debug, Default)]
struct Histogram {
    counts: [u64; ENDS.len()],
    sum: f64,
    count: u64,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    all: Mutex<All>,
}

#[derive(Debug, Default)]
struct All {
    /// Name of the metric → labels → count.
    counters: BTreeMap<&'static str, BTreeMap<String, u64>>,
    /// Status → count.
    requests: BTreeMap<u16, u64>,
    /// Status → node → count.
    results: BTreeMap<u16, BTreeMap<String, u64>>,
    handled: BTreeMap<&'static str, Histogram>,
}

const HELP: [(&str, &str); 9] = [
    ("autoscaling_plugin_extension_calls_total", "Calls of the extender."),
    ("autoscaling_plugin_extension_call_fails_total", "Calls of the extender that were refused or failed."),
    (
        "autoscaling_plugin_reserve_should_deny_total",
        "Bindings that were refused because the node had no room any more.",
    ),
    ("autoscaling_plugin_k8s_ops_total", "Writes to the API server."),
    ("autoscaling_plugin_migrations_created_total", "Migrations that were created."),
    ("autoscaling_plugin_migrations_deleted_total", "Migrations that had ended and were deleted."),
    ("autoscaling_plugin_reconcile_panics_count", "Requests whose handling ended in a panic."),
    ("autoscaling_plugin_watchers_events_total", "Changes that watches have shown."),
    ("autoscaling_plugin_watchers_errors_total", "Watches that were begun anew."),
];

// Writing to a string cannot fail.
fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).ok();
    out.push('\n');
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    line(out, format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
}

/// A label's value between quotes.
fn quoted(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

impl Metrics {
    fn with(&self, f: impl FnOnce(&mut All)) {
        f(&mut self.all.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn count(&self, name: &'static str, labels: String) {
        self.with(|all| *all.counters.entry(name).or_default().entry(labels).or_default() += 1);
    }

    /// An agent was answered.
    pub(crate) fn requested(&self, status: u16, node: Option<&str>) {
        self.with(|all| {
            *all.requests.entry(status).or_default() += 1;
            let nodes = all.results.entry(status).or_default();
            let node = node.unwrap_or("<none>");
            match nodes.get_mut(node) {
                Some(count) => *count += 1,
                None => drop(nodes.insert(node.to_owned(), 1)),
            }
        });
    }

    /// The extender was called.
    pub(crate) fn extension(&self, method: &str, ignored: bool, failed: Option<&str>) {
        let labels =
            format!("method=\"{method}\",desired_availability_zone=\"\",ignored_namespace=\"{ignored}\"");
        if let Some(status) = failed {
            let labels = format!("{labels},status=\"{status}\"");
            self.count("autoscaling_plugin_extension_call_fails_total", labels);
        }
        self.count("autoscaling_plugin_extension_calls_total", labels);
    }

    /// A binding was refused.
    pub(crate) fn denied(&self, node: &str, ignored: bool) {
        let labels = format!("node=\"{}\",ignored_namespace=\"{ignored}\"", quoted(node));
        self.count("autoscaling_plugin_reserve_should_deny_total", labels);
    }

    /// Something was written to the API server, or was to be.
    pub(crate) fn wrote(&self, op: &str, kind: &str, ok: bool) {
        let outcome = if ok { "success" } else { "error" };
        let labels = format!("op=\"{op}\",kind=\"{kind}\",outcome=\"{outcome}\"");
        self.count("autoscaling_plugin_k8s_ops_total", labels);
    }

    pub(crate) fn migration_created(&self) {
        self.count("autoscaling_plugin_migrations_created_total", String::new());
    }

    pub(crate) fn migration_deleted(&self) {
        self.count("autoscaling_plugin_migrations_deleted_total", String::new());
    }

    pub(crate) fn panicked(&self) {
        self.count("autoscaling_plugin_reconcile_panics_count", "kind=\"Request\"".to_owned());
    }

    pub(crate) fn watch_failed(&self) {
        self.count("autoscaling_plugin_watchers_errors_total", String::new());
    }

    /// What a watch has shown was taken in.
    pub(crate) fn handled(&self, kind: &'static str, took: Duration) {
        self.count("autoscaling_plugin_watchers_events_total", format!("watcher_instance=\"{kind}\""));
        self.with(|all| {
            let histogram = all.handled.entry(kind).or_default();
            let seconds = took.as_secs_f64();
            if let Some((_, slot)) = ENDS.iter().zip(&mut histogram.counts).find(|(end, _)| seconds <= **end)
            {
                *slot += 1;
            }
            histogram.sum += seconds;
            histogram.count += 1;
        });
    }

    fn render_counts(&self, out: &mut String) {
        self.with(|all| {
            for (name, help) in HELP {
                head(out, name, "counter", help);
                for (labels, count) in all.counters.get(name).into_iter().flatten() {
                    match labels.as_str() {
                        "" => line(out, format_args!("{name} {count}")),
                        labels => line(out, format_args!("{name}{{{labels}}} {count}")),
                    }
                }
            }
            let name = "autoscaling_plugin_resource_requests_total";
            head(out, name, "counter", "Requests of agents.");
            for (code, count) in &all.requests {
                line(out, format_args!("{name}{{code=\"{code}\"}} {count}"));
            }
            let name = "autoscaling_plugin_resource_requests_results_total";
            head(out, name, "counter", "Answers to agents, by node.");
            for (code, nodes) in &all.results {
                for (node, count) in nodes {
                    let node = quoted(node);
                    line(out, format_args!("{name}{{code=\"{code}\",node=\"{node}\"}} {count}"));
                }
            }
            let name = "autoscaling_plugin_reconcile_duration_seconds";
            head(out, name, "histogram", "Time to take in what a watch has shown.");
            for (kind, histogram) in &all.handled {
                let mut sum = 0;
                let labels = format!("kind=\"{kind}\",outcome=\"success\"");
                for (end, count) in ENDS.iter().zip(histogram.counts) {
                    sum += count;
                    line(out, format_args!("{name}_bucket{{{labels},le=\"{end}\"}} {sum}"));
                }
                line(out, format_args!("{name}_bucket{{{labels},le=\"+Inf\"}} {}", histogram.count));
                line(out, format_args!("{name}_sum{{{labels}}} {}", histogram.sum));
                line(out, format_args!("{name}_count{{{labels}}} {}", histogram.count));
            }
        });
    }
}

/// The text.
pub(crate) fn render(shared: &Shared) -> String {
    let mut out = String::new();
    shared.metrics.render_counts(&mut out);
    let wanted = &shared.config.node_metric_labels;
    let nodes: Vec<(String, ResourceView, ResourceView)> = {
        let state = shared.state();
        let totals = state.totals().into_iter();
        totals
            .map(|(node, cpu, mem)| {
                let own = wanted.iter().map(|(name, key)| {
                    let value = node.labels.get(key).map_or("", String::as_str);
                    format!(",{name}=\"{}\"", quoted(value))
                });
                (format!("node=\"{}\"{}", quoted(&node.name), own.collect::<String>()), cpu, mem)
            })
            .collect()
    };
    let cpu = nodes.iter().map(|(labels, cpu, _)| (labels.as_str(), cpu));
    gauges(&mut out, "autoscaling_plugin_node_cpu_resources_current", cpu, 1000.0);
    let mem = nodes.iter().map(|(labels, _, mem)| (labels.as_str(), mem));
    gauges(&mut out, "autoscaling_plugin_node_mem_resources_current", mem, 1.0);
    head(&mut out, "neonvm_scheduler_leading", "gauge", "Whether this replica leads.");
    line(&mut out, format_args!("neonvm_scheduler_leading {}", u8::from(shared.is_leading())));
    out
}

fn gauges<'a>(
    out: &mut String,
    name: &str,
    nodes: impl Iterator<Item = (&'a str, &'a ResourceView)>,
    unit: f64,
) {
    head(out, name, "gauge", "Amounts of nodes: CPU in cores, memory in bytes.");
    for (labels, view) in nodes {
        for (field, amount) in [
            ("Total", view.total),
            ("Watermark", view.watermark),
            ("Reserved", view.reserved),
            ("Committed", view.committed),
            ("Migrating", view.migrating),
            ("Buffer", view.buffer),
            ("CapacityPressure", view.capacity_pressure),
            ("PressureAccountedFor", view.pressure_accounted_for),
        ] {
            let amount = amount as f64 / unit;
            line(out, format_args!("{name}{{{labels},field=\"{field}\"}} {amount}"));
        }
    }
}
