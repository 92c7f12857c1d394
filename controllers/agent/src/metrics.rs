//! Metrics in the text format of Prometheus, under the names of upstream's agent.

mod per_vm;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use neonvm_core_scaling::agent::Outcome;
use neonvm_core_scaling::agent::action::LatencyOf;
use neonvm_types::scheduler_protocol::PluginResponse;
use neonvm_types::{Resources, RevisionFlags};

pub(crate) use per_vm::per_vm;

/// Upper ends of latencies, in seconds.
const ENDS: [f64; 38] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25,
    1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 60.0,
];
/// Most values of the label `code`; texts of errors vary.
const MOST_CODES: usize = 64;

/// Which way a size changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Direction {
    Inc,
    Dec,
}

impl Direction {
    /// The direction of a change; one that goes both ways counts as growth.
    pub(crate) fn of(from: Resources, to: Resources) -> Self {
        if to.any_greater(from) { Self::Inc } else { Self::Dec }
    }

    const fn label(self) -> &'static str {
        match self {
            Self::Inc => "inc",
            Self::Dec => "dec",
        }
    }
}

#[derive(Debug, Default)]
struct Histogram {
    counts: Vec<u64>,
    sum: f64,
    count: u64,
}

#[derive(Debug, Default)]
struct Inner {
    /// By name and label text.
    counters: BTreeMap<(&'static str, String), f64>,
    /// By name and label text.
    gauges: BTreeMap<(&'static str, String), f64>,
    latencies: BTreeMap<(&'static str, &'static str), Histogram>,
}

/// Everything that is counted.
#[derive(Debug, Default)]
pub(crate) struct Metrics(Mutex<Inner>);

fn cores(resources: Resources) -> f64 {
    resources.vcpus.as_f64()
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus values are doubles")]
fn mebibytes(resources: Resources) -> f64 {
    resources.mem.get() as f64 / f64::from(1 << 20)
}

impl Metrics {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, name: &'static str, labels: &[(&str, &str)], amount: f64) {
        let mut text = joined(labels);
        let mut inner = self.lock();
        let known = inner.counters.contains_key(&(name, text.clone()));
        let many = || inner.counters.keys().filter(|(own, _)| *own == name).count() >= MOST_CODES;
        if !known && many() {
            "code=\"[other]\"".clone_into(&mut text);
        }
        *inner.counters.entry((name, text)).or_default() += amount;
    }

    /// Counts one.
    pub(crate) fn count(&self, name: &'static str, labels: &[(&str, &str)]) {
        self.add(name, labels, 1.0);
    }

    /// Counts several.
    pub(crate) fn count_many(&self, name: &'static str, labels: &[(&str, &str)], amount: u64) {
        #[expect(clippy::cast_precision_loss, reason = "Prometheus values are doubles")]
        self.add(name, labels, amount as f64);
    }

    /// Sets a gauge.
    pub(crate) fn set(&self, name: &'static str, labels: &[(&str, &str)], value: f64) {
        self.lock().gauges.insert((name, joined(labels)), value);
    }

    /// What a step of a core finished.
    pub(crate) fn observe(&self, outcome: &Outcome) {
        self.count("autoscaling_agent_runner_next_actions_total", &[]);
        for latency in &outcome.latencies {
            let name = match latency.of {
                LatencyOf::Scaling => "autoscaling_agent_scaling_latency_seconds",
                LatencyOf::Plugin => "autoscaling_agent_plugin_latency_seconds",
                LatencyOf::Monitor => "autoscaling_agent_monitor_latency_seconds",
                LatencyOf::NeonVm => "autoscaling_agent_neonvm_latency_seconds",
            };
            let up = latency.flags.contains(RevisionFlags::UPSCALE);
            let down = latency.flags.contains(RevisionFlags::DOWNSCALE);
            let direction = match (up, down) {
                (true, true) => "both",
                (true, false) => "inc",
                (false, true) => "dec",
                (false, false) => "none",
            };
            self.took(name, direction, latency.took);
        }
    }

    fn took(&self, name: &'static str, direction: &'static str, took: Duration) {
        let mut inner = self.lock();
        let histogram = inner.latencies.entry((name, direction)).or_default();
        histogram.counts.resize(ENDS.len(), 0);
        let seconds = took.as_secs_f64();
        if let Some((_, count)) = ENDS.iter().zip(&mut histogram.counts).find(|(end, _)| seconds <= **end) {
            *count += 1;
        }
        histogram.sum += seconds;
        histogram.count += 1;
    }

    /// A request to the scheduler, and what it permitted.
    pub(crate) fn scheduler(
        &self,
        code: &str,
        last: Option<Resources>,
        target: Resources,
        answer: Option<&PluginResponse>,
    ) {
        self.count("autoscaling_agent_scheduler_plugin_requests_total", &[("code", code)]);
        let Some(last) = last.filter(|last| *last != target) else { return };
        let direction = Direction::of(last, target);
        let labels = [("direction", direction.label())];
        self.change(
            [
                "autoscaling_agent_scheduler_plugin_requested_cpu_change_total",
                "autoscaling_agent_scheduler_plugin_requested_mem_change_total",
            ],
            &labels,
            last,
            target,
        );
        let Some(PluginResponse { permit, .. }) = answer else { return };
        self.change(
            [
                "autoscaling_agent_scheduler_plugin_accepted_cpu_change_total",
                "autoscaling_agent_scheduler_plugin_accepted_mem_change_total",
            ],
            &labels,
            last,
            *permit,
        );
        if *permit == last {
            self.count("autoscaling_agent_scaling_full_denials_total", &labels);
        } else if target.any_greater(*permit) {
            self.count("autoscaling_agent_scaling_partial_approvals_total", &labels);
        }
    }

    fn change(&self, names: [&'static str; 2], labels: &[(&str, &str)], from: Resources, to: Resources) {
        let [cpu, mem] = names;
        self.add(cpu, labels, (cores(to) - cores(from)).abs());
        self.add(mem, labels, (mebibytes(to) - mebibytes(from)).abs());
    }

    /// A patch of a VM.
    pub(crate) fn patched(&self, direction: Direction, from: Resources, to: Resources, done: bool) {
        let result = if done { "ok" } else { "error" };
        self.count("autoscaling_agent_neonvm_outbound_requests_total", &[("result", result)]);
        let labels = [("direction", direction.label())];
        // The second name is irregular upstream.
        let names = [
            "autoscaling_agent_neonvm_requested_cpu_change_total",
            "autoscaling_agent_neonvm_requested_mem_changed_total",
        ];
        self.change(names, &labels, from, to);
    }

    /// A request to a monitor.
    pub(crate) fn monitor_asked(&self, kind: &str, code: &str) {
        let labels = [("endpoint", kind), ("code", code)];
        self.count("autoscaling_agent_monitor_outbound_requests_total", &labels);
    }

    /// A change that a monitor is asked for.
    pub(crate) fn monitor_change(&self, from: Resources, to: Resources) {
        let names = [
            "autoscaling_agent_monitor_requested_cpu_change_total",
            "autoscaling_agent_monitor_requested_mem_change_total",
        ];
        self.change(names, &[("direction", Direction::of(from, to).label())], from, to);
    }

    /// A request of a monitor.
    pub(crate) fn monitor_asks(&self, kind: &str) {
        self.count("autoscaling_agent_monitor_inbound_requests_total", &[("endpoint", kind), ("code", "ok")]);
    }

    /// All of it as text; `gauges` is put behind.
    pub(crate) fn render(&self, gauges: &str) -> String {
        let inner = self.lock();
        let mut out = String::new();
        for (kind, family) in [("counter", &inner.counters), ("gauge", &inner.gauges)] {
            let mut before = "";
            for ((name, labels), value) in family {
                if *name != before {
                    let _ = writeln!(out, "# TYPE {name} {kind}");
                    before = name;
                }
                let braces = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
                let _ = writeln!(out, "{name}{braces} {value}");
            }
        }
        let mut before = "";
        for ((name, direction), histogram) in &inner.latencies {
            if *name != before {
                let _ = writeln!(out, "# TYPE {name} histogram");
                before = name;
            }
            let mut sum = 0;
            for (end, count) in ENDS.iter().zip(&histogram.counts) {
                sum += count;
                let _ = writeln!(out, "{name}_bucket{{direction=\"{direction}\",le=\"{end}\"}} {sum}");
            }
            let (count, total) = (histogram.count, histogram.sum);
            let _ = writeln!(out, "{name}_bucket{{direction=\"{direction}\",le=\"+Inf\"}} {count}");
            let _ = writeln!(out, "{name}_sum{{direction=\"{direction}\"}} {total}");
            let _ = writeln!(out, "{name}_count{{direction=\"{direction}\"}} {count}");
        }
        out.push_str(gauges);
        out
    }
}

fn joined(labels: &[(&str, &str)]) -> String {
    let all: Vec<String> =
        labels.iter().map(|(key, value)| format!("{key}=\"{}\"", escaped(value))).collect();
    all.join(",")
}

/// A value of a label.
pub(crate) fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_errors_do_not_grow_without_end() {
        let metrics = Metrics::default();
        for number in 0..1000 {
            metrics.scheduler(&format!("[error {number}]"), None, Resources::default(), None);
        }
        let lines = metrics.render("").lines().count();
        assert!(lines <= MOST_CODES + 2, "{lines}");
    }

    #[test]
    fn a_denial_is_told_from_a_partial_permit() {
        let metrics = Metrics::default();
        let size = |n: u32| Resources::new(neonvm_types::MilliCpu::new(250 * n), neonvm_types::Bytes::gib(n));
        metrics.scheduler("200", Some(size(1)), size(4), Some(&PluginResponse::permit(size(1))));
        metrics.scheduler("200", Some(size(1)), size(4), Some(&PluginResponse::permit(size(3))));
        let text = metrics.render("");
        for line in [
            "autoscaling_agent_scaling_full_denials_total{direction=\"inc\"} 1",
            "autoscaling_agent_scaling_partial_approvals_total{direction=\"inc\"} 1",
            "autoscaling_agent_scheduler_plugin_accepted_cpu_change_total{direction=\"inc\"} 0.5",
            "autoscaling_agent_scheduler_plugin_requested_mem_change_total{direction=\"inc\"} 6144",
            "autoscaling_agent_scheduler_plugin_requests_total{code=\"200\"} 2",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }

    #[test]
    fn latencies_fall_into_their_buckets() {
        let metrics = Metrics::default();
        metrics.took("x_seconds", "inc", Duration::from_millis(200));
        metrics.took("x_seconds", "inc", Duration::from_secs(100));
        let text = metrics.render("y 1\n");
        assert!(text.contains("x_seconds_bucket{direction=\"inc\",le=\"0.15\"} 0"), "{text}");
        assert!(text.contains("x_seconds_bucket{direction=\"inc\",le=\"0.2\"} 1"), "{text}");
        assert!(
            text.contains("x_seconds_bucket{direction=\"inc\",le=\"+Inf\"} 2") && text.ends_with("y 1\n")
        );
    }
}
