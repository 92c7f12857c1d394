//! The configuration file: the keys of existing installations as they are, every number in seconds.
//!
//! Files of earlier versions are read as well ([`neonvm_api::service_config`]). What a file does not set is as in
//! [`AgentConfig::default`], which is what deployments ship.

mod check;
mod clients;
mod informant;

use std::path::Path;
use std::time::Duration;

use neonvm_api::ScalingConfig;
use neonvm_api::service_config::{self, Converted};
use neonvm_types::{Bytes, MilliCpu, Resources};
use serde::{Deserialize, Serialize};

#[cfg(test)]
pub(crate) use clients::HttpClient;
pub(crate) use clients::{Clients, Push, S3Client};
pub(crate) use informant::Informant;

/// All settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentConfig {
    /// Steps and targets.
    pub scaling: Scaling,
    /// Billing; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub billing: Option<Billing>,
    /// Events about scaling; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling_events: Option<ScalingEvents>,
    /// The monitors in the guests.
    pub monitor: Monitor,
    /// Guests with an informant instead of a monitor; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub informant: Option<Informant>,
    pub metrics: Metrics,
    /// Connection to the scheduler.
    pub scheduler: Scheduler,
    pub neonvm: NeonVm,
    /// A port that dumps the state; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dump_state: Option<DumpState>,
}

/// Steps and targets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scaling {
    /// The step in which VMs are scaled; no field is zero.
    pub compute_unit: Resources,
    /// Targets of VMs without own targets in their objects.
    pub default_config: ScalingConfig,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Billing {
    /// Name of the metric of CPU seconds.
    pub cpu_metric_name: String,
    /// Name of the metric of active seconds.
    pub active_time_metric_name: String,
    /// How often usage is sampled.
    pub collect_every_seconds: u64,
    /// How often events are made of it.
    pub accumulate_every_seconds: u64,
    /// Where events go.
    #[serde(default)]
    pub clients: Clients,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScalingEvents {
    /// How much one of our compute units counts in events.
    pub cu_multiplier: f64,
    /// How much a part of the goal must change to be reported again, in compute units.
    pub rereport_threshold: f64,
    pub region_name: String,
    /// Where events go.
    #[serde(default)]
    pub clients: Clients,
}

/// A VM counts as stuck when more requests than this failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FailedRate {
    /// Over the last so many seconds.
    pub interval_seconds: u64,
    /// More than this.
    #[serde(default)]
    pub threshold: u64,
}

/// The monitors in the guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Monitor {
    pub server_port: u16,
    pub response_timeout_seconds: u64,
    pub connection_timeout_seconds: u64,
    pub connection_retry_min_wait_seconds: u64,
    pub unhealthy_after_silence_duration_seconds: u64,
    pub unhealthy_startup_grace_period_seconds: u64,
    pub max_health_check_sequential_failures_seconds: u64,
    pub retry_denied_downscale_seconds: u64,
    pub requested_upscale_valid_seconds: u64,
    pub retry_failed_request_seconds: u64,
    pub max_failed_request_rate: FailedRate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Metrics {
    /// Load and memory.
    pub system: MetricsSource,
    /// The local file cache.
    pub lfc: MetricsSource,
}

/// Where metrics are, and how often they are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MetricsSource {
    pub port: u16,
    pub request_timeout_seconds: u64,
    pub seconds_between_requests: u64,
}

/// Connection to the scheduler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scheduler {
    pub scheduler_name: String,
    pub request_timeout_seconds: u64,
    pub request_at_least_every_seconds: u64,
    pub retry_failed_request_seconds: u64,
    pub retry_denied_upscale_seconds: u64,
    pub request_port: u16,
    pub max_failed_request_rate: FailedRate,
    /// There is none: whatever is requested is permitted, and the kubelet that resizes the VM's pod decides. No
    /// watermarks, no migrations.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub none: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NeonVm {
    pub request_timeout_seconds: u64,
    pub retry_failed_request_seconds: u64,
    pub max_failed_request_rate: FailedRate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DumpState {
    pub port: u16,
    pub timeout_seconds: u64,
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}")]
    File {
        path: String,
        /// Error of the file system.
        #[source]
        source: std::io::Error,
    },
    /// The text is not valid JSON of a configuration.
    #[error("{path}: {reason}")]
    Json {
        path: String,
        /// What is wrong, and where.
        reason: String,
    },
    /// Its values; all of them.
    #[error("{path}: {}", .faults.join("; "))]
    Values {
        path: String,
        /// Each names its key.
        faults: Vec<String>,
    },
}

impl Default for AgentConfig {
    fn default() -> Self {
        let rate = |threshold| FailedRate { interval_seconds: 120, threshold };
        let source = |port, timeout, between| MetricsSource {
            port,
            request_timeout_seconds: timeout,
            seconds_between_requests: between,
        };
        Self {
            scaling: Scaling {
                compute_unit: Resources::new(MilliCpu::new(250), Bytes::gib(1)),
                default_config: ScalingConfig::SHIPPED,
            },
            billing: None,
            scaling_events: None,
            monitor: Monitor {
                server_port: 10301,
                response_timeout_seconds: 5,
                connection_timeout_seconds: 4,
                connection_retry_min_wait_seconds: 5,
                unhealthy_after_silence_duration_seconds: 20,
                unhealthy_startup_grace_period_seconds: 20,
                max_health_check_sequential_failures_seconds: 30,
                retry_denied_downscale_seconds: 5,
                requested_upscale_valid_seconds: 10,
                retry_failed_request_seconds: 3,
                max_failed_request_rate: rate(2),
            },
            informant: None,
            metrics: Metrics { system: source(9100, 2, 5), lfc: source(9499, 5, 15) },
            scheduler: Scheduler {
                scheduler_name: "autoscale-scheduler".into(),
                request_timeout_seconds: 2,
                request_at_least_every_seconds: 15,
                retry_failed_request_seconds: 3,
                retry_denied_upscale_seconds: 2,
                request_port: 10299,
                max_failed_request_rate: rate(5),
                none: false,
            },
            neonvm: NeonVm {
                request_timeout_seconds: 10,
                retry_failed_request_seconds: 5,
                max_failed_request_rate: rate(2),
            },
            dump_state: None,
        }
    }
}

impl AgentConfig {
    /// Reads and checks a file. Also returns its keys that have no effect, with the reason.
    ///
    /// # Errors
    /// Names the file and the key; of wrong values all.
    pub fn read(path: &Path) -> Result<(Self, Vec<String>), ConfigError> {
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::File { path: shown.clone(), source })?;
        Self::understand(&text, &shown)
    }

    /// Reads and checks a text; `path` is for messages.
    ///
    /// # Errors
    /// As [`AgentConfig::read`].
    pub fn parse(text: &str, path: &str) -> Result<Self, ConfigError> {
        Self::understand(text, path).map(|(config, _)| config)
    }

    fn understand(text: &str, path: &str) -> Result<(Self, Vec<String>), ConfigError> {
        let unreadable = |reason| ConfigError::Json { path: path.to_owned(), reason };
        let file = service_config::agent(text).map_err(|error| unreadable(error.to_string()))?;
        let mut faults = file.faults.clone();
        let config = match read_naming_keys(&file) {
            Ok(config) => config,
            Err(fault) if faults.is_empty() => return Err(unreadable(in_terms_of(&file, &fault))),
            Err(_) => return Err(ConfigError::Values { path: path.to_owned(), faults }),
        };
        faults.extend(check::faults(&config).iter().map(|fault| in_terms_of(&file, fault)));
        if !faults.is_empty() {
            return Err(ConfigError::Values { path: path.to_owned(), faults });
        }
        let idle = file.without_effect().map(|key| format!("{}: {}", key.key, key.text)).collect();
        Ok((config, idle))
    }
}

/// An error names the key at fault, which that of the parser alone does not.
fn read_naming_keys(file: &Converted) -> Result<AgentConfig, String> {
    serde_path_to_error::deserialize(neonvm_types::objects::Objects(&file.document)).map_err(|error| {
        let key = error.path().to_string();
        if key == "." { error.inner().to_string() } else { format!("{key}: {}", error.inner()) }
    })
}

/// A fault of a key of today, with the name that the key has in the file.
fn in_terms_of(file: &Converted, fault: &str) -> String {
    let key = fault.split([' ', ':']).next().unwrap_or_default();
    match file.name_in_file(key) {
        Some(name) => format!("{name} is used as {fault}"),
        None => fault.to_owned(),
    }
}

/// Whole seconds as a span.
pub(crate) const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[cfg(test)]
mod tests;
