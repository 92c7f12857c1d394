//! Scaling bounds and configuration, as annotations carry them.

use neonvm_types::{Bytes, MilliCpu, Quantity, Resources, Timestamp};
use serde::{Deserialize, Serialize};

use crate::field_error::{Faults, FieldError};

/// `autoscaling.neon.tech/bounds`: `{"min":{"cpu":"250m","mem":"1Gi"},"max":{"cpu":1,"mem":"4Gi"}}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScalingBounds {
    /// The least the VM shrinks to.
    #[serde(default)]
    pub min: BoundResources,
    /// The most it grows to.
    #[serde(default)]
    pub max: BoundResources,
}

/// One end of the bounds. What is absent is zero and therefore refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundResources {
    /// CPU.
    #[serde(default)]
    pub cpu: Quantity,
    /// Memory: a multiple of the VM's slot size.
    #[serde(default)]
    pub mem: Quantity,
}

impl ScalingBounds {
    /// All that is wrong with the bounds for a VM with this slot size.
    #[must_use]
    pub fn validate(&self, slot_size: Bytes) -> Vec<FieldError> {
        let mut faults = Faults::default();
        for (end, bound) in [("min", self.min), ("max", self.max)] {
            match MilliCpu::try_from(bound.cpu) {
                Err(error) => faults.push(format!("{end}.cpu"), error.to_string()),
                Ok(cpu) => faults.require(
                    cpu != MilliCpu::ZERO,
                    format!("{end}.cpu"),
                    "must be above 0; write for example \"250m\"",
                ),
            }
            match Bytes::try_from(bound.mem) {
                Err(error) => faults.push(format!("{end}.mem"), error.to_string()),
                Ok(Bytes::ZERO) => faults
                    .push(format!("{end}.mem"), format!("must be above 0; write for example {slot_size}")),
                Ok(mem) => {
                    let slots = mem.slots(slot_size).and_then(|slots| u16::try_from(slots).ok());
                    faults.require(
                        mem.is_multiple_of(slot_size),
                        format!("{end}.mem"),
                        format!("{mem} must be a multiple of the memory slot size {slot_size}"),
                    );
                    faults.require(
                        slots.is_some(),
                        format!("{end}.mem"),
                        format!("{mem} needs more than 65535 slots of {slot_size}; lower it"),
                    );
                }
            }
        }
        faults.finish()
    }
}

/// `autoscaling.neon.tech/hold`: a person fixes the size for a while; `{"size":{"vCPUs":1,"mem":"4Gi"},"until":"…","force":true}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// The size the VM is to have, within its bounds.
    pub size: Resources,
    /// When scaling by load continues.
    pub until: Timestamp,
    /// Whether CPU is taken away without the consent of the guest's monitor. Memory never is. Absent: no.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

/// `autoscaling.neon.tech/metric`: a metric of the user's own that scales the VM; `{"name":"queue_depth","target":8}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UserMetric {
    /// Name of a series that the VM's metrics port serves; the sum over its samples counts.
    pub name: String,
    /// Value per compute unit to aim at; above 0.
    pub target: f64,
}

impl UserMetric {
    /// All that is wrong with it.
    #[must_use]
    pub fn validate(&self) -> Vec<FieldError> {
        let mut faults = Faults::default();
        let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        let named = !self.name.is_empty()
            && self.name.chars().all(good)
            && !self.name.starts_with(|c: char| c.is_ascii_digit());
        faults.require(named, "name", format!("{:?} is not the name of a Prometheus metric", self.name));
        let target = self.target;
        faults.require(target.is_finite() && target > 0.0, "target", format!("{target} must be above 0"));
        faults.finish()
    }
}

/// `autoscaling.neon.tech/config`, and the agent's default configuration. What is absent falls back to the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScalingConfig {
    /// Load per CPU to aim at; above 0, below 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_average_fraction_target: Option<f64>,
    /// Share of memory in use without page cache to aim at; above 0, below 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_usage_fraction_target: Option<f64>,
    /// Share of memory in use with file cache to aim at; above 0, below 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_total_fraction_target: Option<f64>,
    /// Whether metrics of the local file cache count.
    #[serde(default, rename = "enableLFCMetrics", skip_serializing_if = "Option::is_none")]
    pub enable_lfc_metrics: Option<bool>,
    /// Whether the largest window of the file cache decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lfc_use_largest_window: Option<bool>,
    /// Share of memory the file cache may have; above 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lfc_to_memory_ratio: Option<f64>,
    /// Window over which the working set is estimated, in minutes; 2 to 60.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lfc_window_size_minutes: Option<u32>,
    /// Minutes before the file cache lets a VM shrink; not below the window, at most 60.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lfc_min_wait_before_downscale_minutes: Option<u32>,
    /// Width of the zone in which the longer load average decides; 0 or more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_stable_zone_ratio: Option<f64>,
    /// Width of the zone in which both load averages are blended; 0 or more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_mixed_zone_ratio: Option<f64>,
}

impl ScalingConfig {
    /// The configuration that deployments ship. Every field is set.
    pub const SHIPPED: Self = Self {
        load_average_fraction_target: Some(0.9),
        memory_usage_fraction_target: Some(0.75),
        memory_total_fraction_target: Some(0.9),
        enable_lfc_metrics: Some(false),
        lfc_use_largest_window: Some(false),
        lfc_to_memory_ratio: Some(0.75),
        lfc_window_size_minutes: Some(5),
        lfc_min_wait_before_downscale_minutes: Some(5),
        cpu_stable_zone_ratio: Some(0.0),
        cpu_mixed_zone_ratio: Some(0.0),
    };

    /// This configuration with the fields that `overrides` sets replaced.
    #[must_use]
    pub fn with(self, overrides: Self) -> Self {
        Self {
            load_average_fraction_target: overrides
                .load_average_fraction_target
                .or(self.load_average_fraction_target),
            memory_usage_fraction_target: overrides
                .memory_usage_fraction_target
                .or(self.memory_usage_fraction_target),
            memory_total_fraction_target: overrides
                .memory_total_fraction_target
                .or(self.memory_total_fraction_target),
            enable_lfc_metrics: overrides.enable_lfc_metrics.or(self.enable_lfc_metrics),
            lfc_use_largest_window: overrides.lfc_use_largest_window.or(self.lfc_use_largest_window),
            lfc_to_memory_ratio: overrides.lfc_to_memory_ratio.or(self.lfc_to_memory_ratio),
            lfc_window_size_minutes: overrides.lfc_window_size_minutes.or(self.lfc_window_size_minutes),
            lfc_min_wait_before_downscale_minutes: overrides
                .lfc_min_wait_before_downscale_minutes
                .or(self.lfc_min_wait_before_downscale_minutes),
            cpu_stable_zone_ratio: overrides.cpu_stable_zone_ratio.or(self.cpu_stable_zone_ratio),
            cpu_mixed_zone_ratio: overrides.cpu_mixed_zone_ratio.or(self.cpu_mixed_zone_ratio),
        }
    }

    /// All values that are out of range; upstream lets some through that crash the agent later.
    #[must_use]
    pub fn validate(&self) -> Vec<FieldError> {
        let mut faults = Faults::default();
        let mut check = |name: &str, value: Option<f64>, good: fn(f64) -> bool, range: &str| {
            if let Some(value) = value {
                faults.require(value.is_finite() && good(value), name, format!("{value} must be {range}"));
            }
        };
        let target = |value: f64| value > 0.0 && value < 1.0;
        let load = |value: f64| value > 0.0 && value < 2.0;
        check("loadAverageFractionTarget", self.load_average_fraction_target, load, "above 0 and below 2");
        check("memoryUsageFractionTarget", self.memory_usage_fraction_target, target, "above 0 and below 1");
        check("memoryTotalFractionTarget", self.memory_total_fraction_target, target, "above 0 and below 1");
        check("lfcToMemoryRatio", self.lfc_to_memory_ratio, |value| value > 0.0, "above 0");
        check("cpuStableZoneRatio", self.cpu_stable_zone_ratio, |value| value >= 0.0, "0 or more");
        check("cpuMixedZoneRatio", self.cpu_mixed_zone_ratio, |value| value >= 0.0, "0 or more");
        if let Some(window) = self.lfc_window_size_minutes {
            let name = "lfcWindowSizeMinutes";
            faults.require((2..=60).contains(&window), name, format!("{window} must be between 2 and 60"));
        }
        if let Some(wait) = self.lfc_min_wait_before_downscale_minutes {
            let name = "lfcMinWaitBeforeDownscaleMinutes";
            faults.require(wait <= 60, name, format!("{wait} must be at most 60"));
            faults.require(
                self.lfc_window_size_minutes.is_none_or(|window| window <= wait),
                name,
                format!("{wait} must not be below lfcWindowSizeMinutes; raise it or shorten the window"),
            );
        }
        faults.finish()
    }

    /// As [`ScalingConfig::validate`], and every field must be set: for the agent's default configuration.
    #[must_use]
    pub fn validate_complete(&self) -> Vec<FieldError> {
        let mut faults = Faults::default();
        for (name, set) in [
            ("loadAverageFractionTarget", self.load_average_fraction_target.is_some()),
            ("memoryUsageFractionTarget", self.memory_usage_fraction_target.is_some()),
            ("memoryTotalFractionTarget", self.memory_total_fraction_target.is_some()),
            ("enableLFCMetrics", self.enable_lfc_metrics.is_some()),
            ("lfcUseLargestWindow", self.lfc_use_largest_window.is_some()),
            ("lfcToMemoryRatio", self.lfc_to_memory_ratio.is_some()),
            ("lfcWindowSizeMinutes", self.lfc_window_size_minutes.is_some()),
            ("lfcMinWaitBeforeDownscaleMinutes", self.lfc_min_wait_before_downscale_minutes.is_some()),
            ("cpuStableZoneRatio", self.cpu_stable_zone_ratio.is_some()),
            ("cpuMixedZoneRatio", self.cpu_mixed_zone_ratio.is_some()),
        ] {
            faults.require(set, name, "must be set in the default configuration");
        }
        let mut errors = faults.finish();
        errors.extend(self.validate());
        errors
    }
}

#[cfg(test)]
mod tests;
