//! Metrics of a guest, and how they are read from the Prometheus text format.

use neonvm_types::scheduler_protocol::Metrics;
use serde::Serialize;

mod read;
mod text;

pub use read::{MAX_BODY_BYTES, MetricsError, parse_lfc, parse_system};

/// What the kernel counts beside what is `available`; keeps a margin. `usage = total − available + this`.
pub const MEMORY_MARGIN_BYTES: f64 = 104_857_600.0;

/// Load and memory of a guest at one moment. Values are finite and at least 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SystemMetrics {
    /// One-minute load average, in tasks.
    pub load1: f64,
    /// Five-minute load average, in tasks.
    pub load5: f64,
    /// Memory in use without page cache, with a margin, in bytes.
    pub memory_usage_bytes: f64,
    /// Page cache, in bytes.
    pub memory_cached_bytes: f64,
    /// Share of the last 10 s in which some task waited for a CPU, in percent (PSI `some avg10`).
    pub cpu_pressure: Option<f64>,
    /// Share of the last 10 s in which some task waited for memory, in percent.
    pub memory_pressure: Option<f64>,
    /// CPU time that the host took away, in seconds since boot, over all CPUs.
    pub steal_seconds: Option<f64>,
    /// CPU time in use, in seconds since boot, over all CPUs: neither idle nor waiting for a disk nor taken away by the host.
    pub busy_seconds: Option<f64>,
    /// The user's own metric, summed over its samples.
    pub user: Option<f64>,
}

impl SystemMetrics {
    /// The part that is sent to the scheduler: protocol v5.0 carries the short load average alone.
    #[must_use]
    pub fn for_scheduler(&self) -> Metrics {
        // Beyond the range of 32 bits the value is a lie anyway; infinity is not a number in JSON.
        let load = self.load1.clamp(0.0, f64::from(f32::MAX));
        #[allow(clippy::cast_possible_truncation, reason = "a load average has few digits")]
        let load_avg_1m = if load.is_finite() { load as f32 } else { 0.0 };
        Metrics { load_avg_1m, load_avg_5m: None, memory_usage_bytes: None }
    }

    /// The same without invalid optional values; `None` if a required value is invalid, because a goal made from it could shrink
    /// a VM for no reason.
    #[must_use]
    pub fn sane(self) -> Option<Self> {
        let good = |value: f64| value.is_finite() && value >= 0.0;
        let needed = [self.load1, self.load5, self.memory_usage_bytes, self.memory_cached_bytes];
        let optional = |value: Option<f64>| value.filter(|v| good(*v));
        needed.into_iter().all(good).then_some(Self {
            cpu_pressure: optional(self.cpu_pressure),
            memory_pressure: optional(self.memory_pressure),
            steal_seconds: optional(self.steal_seconds),
            busy_seconds: optional(self.busy_seconds),
            user: optional(self.user),
            ..self
        })
    }
}

/// Metrics of the local file cache.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LfcMetrics {
    /// Pages found.
    pub hits: f64,
    /// Pages not found.
    pub misses: f64,
    pub writes: f64,
    /// Distinct 8 KiB pages touched over the last 1, 2, 3, … minutes.
    pub windows: Vec<f64>,
}

impl LfcMetrics {
    /// Longest series, in minutes: a day.
    pub const MOST_WINDOWS: usize = 1440;

    /// The same, cut to what is needed; `None` if a window is invalid.
    #[must_use]
    pub fn sane(mut self) -> Option<Self> {
        self.windows.truncate(Self::MOST_WINDOWS);
        let good = |value: &f64| value.is_finite() && *value >= 0.0;
        self.windows.shrink_to_fit();
        self.windows.iter().all(good).then_some(self)
    }
}
