//! Metrics in the text format of Prometheus. Names of the upstream controller are kept.

mod migrations;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::addresses::Ipam;
use crate::lag::Lag;

/// Upper ends in milliseconds: short work.
const SHORT: &[u64] =
    &[5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 20_000, 30_000, 45_000, 60_000];
/// Upper ends in milliseconds: starts.
const LONG: &[u64] = &[
    500, 1_000, 2_000, 3_000, 4_000, 5_000, 7_500, 10_000, 15_000, 20_000, 30_000, 45_000, 60_000, 90_000,
    120_000, 180_000, 240_000, 300_000,
];

/// Most ends that a histogram has.
const SLOTS: usize = 20;

/// A histogram.
#[derive(Debug)]
pub(crate) struct Histogram {
    ends: &'static [u64],
    counts: [AtomicU64; SLOTS],
    sum_us: AtomicU64,
    count: AtomicU64,
}

impl Histogram {
    pub(crate) fn new(ends: &'static [u64]) -> Self {
        let counts = std::array::from_fn(|_| AtomicU64::new(0));
        Self { ends, counts, sum_us: AtomicU64::new(0), count: AtomicU64::new(0) }
    }

    pub(crate) fn observe(&self, took: Duration) {
        let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        if let Some((_, slot)) = self.ends.iter().zip(&self.counts).find(|(end, _)| millis <= **end) {
            slot.fetch_add(1, Ordering::Relaxed);
        }
        self.sum_us.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn render(&self, out: &mut String, name: &str, label: &str) {
        let comma = if label.is_empty() { "" } else { "," };
        let mut sum = 0;
        for (end, slot) in self.ends.iter().zip(&self.counts) {
            sum += slot.load(Ordering::Relaxed);
            line(out, format_args!("{name}_bucket{{{label}{comma}le=\"{}\"}} {sum}", *end as f64 / 1000.0));
        }
        let count = self.count.load(Ordering::Relaxed);
        line(out, format_args!("{name}_bucket{{{label}{comma}le=\"+Inf\"}} {count}"));
        let labels = if label.is_empty() { String::new() } else { format!("{{{label}}}") };
        let seconds = self.sum_us.load(Ordering::Relaxed) as f64 / 1e6;
        line(out, format_args!("{name}_sum{labels} {seconds}"));
        line(out, format_args!("{name}_count{labels} {count}"));
    }
}

/// What there is to do.
#[derive(Debug)]
pub(crate) struct Work {
    /// Machines in each phase.
    pub(crate) vms: BTreeMap<&'static str, usize>,
    /// Migrations in each phase.
    pub(crate) migrations: BTreeMap<String, usize>,
    /// Machines that wait for a worker.
    pub(crate) depth: usize,
}

impl Work {
    fn render(&self, out: &mut String) {
        let vms: Vec<(&str, usize)> = self.vms.iter().map(|(phase, count)| (*phase, *count)).collect();
        let migrations = self.migrations.iter().map(|(phase, count)| (phase.as_str(), *count)).collect();
        for (name, help, counts) in [
            ("neonvm_vm_controller_vms", "VMs in each phase.", vms),
            ("neonvm_vm_controller_migrations", "Migrations in each phase.", migrations),
        ] {
            head(out, name, "gauge", help);
            for (phase, count) in counts {
                line(out, format_args!("{name}{{phase=\"{phase}\"}} {count}"));
            }
        }
        head(out, "neonvm_vm_controller_queue_depth", "gauge", "VMs that wait for work.");
        line(out, format_args!("neonvm_vm_controller_queue_depth {}", self.depth));
    }
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) success: Histogram,
    pub(crate) failure: Histogram,
    pub(crate) conflict: Histogram,
    pub(crate) creation_to_runner: Histogram,
    pub(crate) runner_to_running: Histogram,
    pub(crate) creation_to_running: Histogram,
    pub(crate) scaling: Histogram,
    pub(crate) restarts: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) migrations: migrations::Migrations,
    pub(crate) ipam: Arc<Ipam>,
}

impl Default for Metrics {
    fn default() -> Self {
        let (short, long) = (|| Histogram::new(SHORT), || Histogram::new(LONG));
        Self {
            success: short(),
            failure: short(),
            conflict: short(),
            creation_to_runner: short(),
            runner_to_running: long(),
            creation_to_running: long(),
            scaling: short(),
            restarts: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            migrations: migrations::Migrations::default(),
            ipam: Arc::default(),
        }
    }
}

// Writing to a string cannot fail.
pub(crate) fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).ok();
    out.push('\n');
}

pub(crate) fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    line(out, format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
}

impl Metrics {
    /// The text.
    pub(crate) fn render(&self, lag: &Lag, work: Option<&Work>, addresses: Option<(usize, usize)>) -> String {
        let mut out = String::new();
        let name = "reconcile_failing_objects";
        head(&mut out, name, "gauge", "Objects that only failed for the failure-pending period.");
        for (outcome, counts) in ["failure", "conflict"].into_iter().zip(lag.counts()) {
            for (retried, count) in [("true", counts.retried), ("false", counts.not_retried)] {
                line(
                    &mut out,
                    format_args!(
                        "{name}{{controller=\"virtualmachine\",outcome=\"{outcome}\",actively_retried=\"{retried}\"}} {count}"
                    ),
                );
            }
        }
        head(&mut out, "reconcile_duration_seconds", "histogram", "Time of a turn of work on an object.");
        let turns = [("success", &self.success), ("failure", &self.failure), ("conflict", &self.conflict)];
        for (outcome, histogram) in turns {
            histogram.render(&mut out, "reconcile_duration_seconds", &format!("outcome=\"{outcome}\""));
        }
        for (name, help, histogram) in [
            (
                "vm_creation_to_runner_creation_duration_seconds",
                "From the creation of a VM to that of its first runner pod.",
                &self.creation_to_runner,
            ),
            (
                "vm_runner_creation_to_vm_running_duration_seconds",
                "From the creation of a runner pod to phase Running.",
                &self.runner_to_running,
            ),
            (
                "vm_creation_to_vm_running_duration_seconds",
                "From the creation of a VM to its first phase Running.",
                &self.creation_to_running,
            ),
            (
                "neonvm_vm_controller_scaling_seconds",
                "From a change of size being seen to the size being reached.",
                &self.scaling,
            ),
        ] {
            head(&mut out, name, "histogram", help);
            histogram.render(&mut out, name, "");
        }
        for (name, help, counter) in [
            ("vm_restarts_count", "Restarts of VMs.", &self.restarts),
            ("neonvm_vm_controller_writes_total", "Writes to the API server.", &self.writes),
        ] {
            head(&mut out, name, "counter", help);
            line(&mut out, format_args!("{name} {}", counter.load(Ordering::Relaxed)));
        }
        self.ipam.render(&mut out, addresses);
        self.migrations.render(&mut out);
        if let Some(work) = work {
            work.render(&mut out);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_are_cumulative() {
        let metrics = Metrics::default();
        metrics.success.observe(Duration::from_millis(7));
        metrics.success.observe(Duration::from_secs(100));
        let text = metrics.render(&Lag::new(Duration::from_secs(60)), None, None);
        for part in [
            "reconcile_duration_seconds_bucket{outcome=\"success\",le=\"0.005\"} 0\n",
            "reconcile_duration_seconds_bucket{outcome=\"success\",le=\"0.01\"} 1\n",
            "reconcile_duration_seconds_bucket{outcome=\"success\",le=\"60\"} 1\n",
            "reconcile_duration_seconds_bucket{outcome=\"success\",le=\"+Inf\"} 2\n",
            "reconcile_duration_seconds_count{outcome=\"success\"} 2\n",
            "vm_restarts_count 0\n",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
