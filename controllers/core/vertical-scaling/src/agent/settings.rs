//! What the agent is configured with: waits, limits and the default scaling configuration.

use std::time::Duration;

use neonvm_api::ScalingConfig;
use neonvm_types::{Bytes, MilliCpu, Resources};
use serde::Serialize;

use crate::agent::vm::Vm;

/// More failures than `threshold` within `interval` mean that a peer is stuck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FailureRate {
    /// How far back failures count.
    pub interval: Duration,
    /// How many are still normal.
    pub threshold: u32,
}

/// Settings of one agent, the same for all its VMs except for the jitter in `plugin_request_tick`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Settings {
    /// The step in which VMs scale; no field is zero.
    pub compute_unit: Resources,
    /// Values for fields that a VM's annotation does not set.
    pub defaults: ScalingConfig,
    /// Wait after a failed patch; doubles with each failure in a row, at most eight times as long.
    pub neonvm_retry_wait: Duration,
    /// Each VM is reported to the scheduler at least this often. The shell subtracts its jitter.
    pub plugin_request_tick: Duration,
    /// Wait after a failed request to the scheduler; doubles like `neonvm_retry_wait`.
    pub plugin_retry_wait: Duration,
    /// Wait after a permit below the request; doubles with each in a row, at most four times as long.
    pub plugin_denied_retry_wait: Duration,
    /// For how long a size that the monitor denied is not requested again; doubles from the third time on, at
    /// most 16 times.
    pub monitor_denied_downscale_cooldown: Duration,
    /// For how long a request of the monitor stays in force.
    pub monitor_requested_upscale_valid_period: Duration,
    /// Wait after a failed request to the monitor; doubles like `neonvm_retry_wait`.
    pub monitor_retry_wait: Duration,
    /// A request to the scheduler without reply for this long has failed. Longer than the shell's own time limit.
    pub plugin_reply_deadline: Duration,
    /// The same for a patch.
    pub neonvm_reply_deadline: Duration,
    /// The same for a request to the monitor.
    pub monitor_reply_deadline: Duration,
    /// Without a sign of life of the monitor for this long the VM is called stuck.
    pub monitor_unhealthy: Duration,
    /// A connection without a sign of life for this long is closed and made again. Longer than `monitor_unhealthy`: a
    /// monitor may be blocked on its database for a while, and what it does meanwhile would be lost.
    pub monitor_silence: Duration,
    /// For how long a VM may be without a monitor before this is called stuck.
    pub monitor_startup_grace: Duration,
    /// For how long the observed size may differ from the requested one before the VM is reported as stuck.
    pub resize_deadline: Duration,
    /// For how long the scheduler may announce a migration that does not begin before the VM is reported as stuck.
    pub migration_deadline: Duration,
    /// Metrics older than this do not justify shrinking.
    pub metrics_stale_after: Duration,
    /// Without metrics for this long the VM is called stuck.
    pub metrics_lost_after: Duration,
    /// How often requests to the scheduler may fail.
    pub plugin_failures: FailureRate,
    /// How often requests to the monitor may fail.
    pub monitor_failures: FailureRate,
    /// How often patches may fail.
    pub neonvm_failures: FailureRate,
    /// A part of the goal that changed by less than this many compute units is not reported again.
    pub rereport_threshold: f64,
}

impl Settings {
    /// What deployments ship: compute units of a quarter CPU and 1 GiB.
    pub const SHIPPED: Self = Self {
        compute_unit: Resources::new(MilliCpu::new(250), Bytes::gib(1)),
        defaults: ScalingConfig::SHIPPED,
        neonvm_retry_wait: Duration::from_secs(5),
        plugin_request_tick: Duration::from_secs(15),
        plugin_retry_wait: Duration::from_secs(3),
        plugin_denied_retry_wait: Duration::from_secs(2),
        monitor_denied_downscale_cooldown: Duration::from_secs(5),
        monitor_requested_upscale_valid_period: Duration::from_secs(10),
        monitor_retry_wait: Duration::from_secs(3),
        plugin_reply_deadline: Duration::from_secs(5),
        neonvm_reply_deadline: Duration::from_secs(15),
        monitor_reply_deadline: Duration::from_secs(8),
        monitor_unhealthy: Duration::from_secs(20),
        monitor_silence: Duration::from_secs(30),
        monitor_startup_grace: Duration::from_secs(20),
        resize_deadline: Duration::from_secs(60),
        migration_deadline: Duration::from_secs(300),
        metrics_stale_after: Duration::from_secs(60),
        metrics_lost_after: Duration::from_secs(300),
        plugin_failures: FailureRate { interval: Duration::from_secs(120), threshold: 5 },
        monitor_failures: FailureRate { interval: Duration::from_secs(120), threshold: 2 },
        neonvm_failures: FailureRate { interval: Duration::from_secs(120), threshold: 2 },
        rereport_threshold: 0.25,
    };

    /// The scaling configuration that holds for `vm`: its own, then the defaults, each value within its range.
    #[must_use]
    pub fn config_for(&self, vm: &Vm) -> Config {
        let overrides = vm.info.config.scaling_config.unwrap_or_default();
        Config::resolve([overrides, self.defaults, ScalingConfig::SHIPPED])
    }
}

/// A scaling configuration without gaps and without values that the formulas cannot bear.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Config {
    /// Load per CPU to aim at; above 0, below 2.
    pub load_target: f64,
    /// Share of memory in use without page cache to aim at; above 0, below 1.
    pub memory_usage_target: f64,
    /// Share of memory in use with file cache to aim at; above 0, below 1.
    pub memory_total_target: f64,
    /// Whether the file cache counts.
    pub lfc: bool,
    /// Whether the largest window of the file cache decides.
    pub lfc_largest_window: bool,
    /// Share of memory the file cache may have; above 0.
    pub lfc_to_memory: f64,
    /// Window over which the working set is estimated, in minutes; at least 2.
    pub lfc_window: usize,
    /// Minutes before the file cache lets a VM shrink; at least the window.
    pub lfc_min_wait: usize,
    /// Width of the zone in which the longer load average decides.
    pub cpu_stable_zone: f64,
    /// Width of the zone in which both load averages are blended.
    pub cpu_mixed_zone: f64,
}

/// The first value that is set and good; `ScalingConfig::SHIPPED` comes last and always has one.
fn first<T: Copy>(values: [Option<T>; 3], good: impl Fn(T) -> bool, otherwise: T) -> T {
    values.into_iter().flatten().find(|value| good(*value)).unwrap_or(otherwise)
}

impl Config {
    fn resolve(layers: [ScalingConfig; 3]) -> Self {
        let share = |value: f64| value > 0.0 && value < 1.0;
        let zone = |value: f64| value.is_finite() && value >= 0.0;
        let window = first(layers.map(|l| l.lfc_window_size_minutes), |w| (2..=60).contains(&w), 5);
        let wait = first(layers.map(|l| l.lfc_min_wait_before_downscale_minutes), |w| w <= 60, 5);
        Self {
            load_target: first(layers.map(|l| l.load_average_fraction_target), |v| v > 0.0 && v < 2.0, 0.9),
            memory_usage_target: first(layers.map(|l| l.memory_usage_fraction_target), share, 0.75),
            memory_total_target: first(layers.map(|l| l.memory_total_fraction_target), share, 0.9),
            lfc: first(layers.map(|l| l.enable_lfc_metrics), |_| true, false),
            lfc_largest_window: first(layers.map(|l| l.lfc_use_largest_window), |_| true, false),
            lfc_to_memory: first(layers.map(|l| l.lfc_to_memory_ratio), |v| v > 0.0 && v.is_finite(), 0.75),
            lfc_window: usize::try_from(window).unwrap_or(5),
            // Each may come from another layer, so their order is only sure here.
            lfc_min_wait: usize::try_from(wait.max(window)).unwrap_or(5),
            cpu_stable_zone: first(layers.map(|l| l.cpu_stable_zone_ratio), zone, 0.0),
            cpu_mixed_zone: first(layers.map(|l| l.cpu_mixed_zone_ratio), zone, 0.0),
        }
    }
}
