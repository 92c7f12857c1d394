//! What all VMs of an agent share.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff;
use kube::Client;
use neonvm_core_vertical_scaling::agent::{FailureRate, Settings};
use neonvm_types::Timestamp;
use rustls::ClientConfig;
use tokio::time::Instant;

use crate::config::{AgentConfig, FailedRate, seconds};
use crate::disks::DiskUses;
use crate::history::History;
use crate::metrics::Metrics;
use crate::monitor::informant;
use crate::scaling_events::ScalingEvents;
use crate::scheduler::{Patience, Scheduler};

/// Requests to the scheduler are sent up to this much early, differently for each VM, so that they spread out.
const TICK_JITTER: Duration = Duration::from_millis(100);
/// The core waits this much longer than the shell before it takes a reply for lost.
const DEADLINE_MARGIN: Duration = Duration::from_secs(2);

pub(crate) struct Shared {
    pub(crate) client: Client,
    /// For runners.
    pub(crate) tls: Arc<ClientConfig>,
    pub(crate) config: AgentConfig,
    pub(crate) settings: Settings,
    pub(crate) scheduler: Scheduler,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) scaling_events: ScalingEvents,
    /// If guests may have informants.
    pub(crate) informants: Option<informant::Settings>,
    /// What happened to each VM.
    pub(crate) history: History,
    /// How full the disks of each VM are.
    pub(crate) disks: DiskUses,
    started: Instant,
    /// The wall clock at `started`, in milliseconds since 1970.
    pub(crate) epoch_unix_ms: i64,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn new(
        client: Client,
        tls: Arc<ClientConfig>,
        config: AgentConfig,
        scaling_events: ScalingEvents,
        informants: Option<informant::Settings>,
        history: History,
    ) -> Self {
        let within = patience(&config);
        Self {
            client,
            scheduler: Scheduler::new(Arc::clone(&tls), within, config.scheduler.none),
            tls,
            settings: settings(&config),
            config,
            metrics: Arc::clone(scaling_events.metrics()),
            scaling_events,
            informants,
            history,
            disks: DiskUses::default(),
            started: Instant::now(),
            epoch_unix_ms: jiff::Timestamp::now().as_millisecond(),
        }
    }

    /// Time on the core's clock.
    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// The runtime's moment of a time on the core's clock.
    pub(crate) fn instant(&self, at: Duration) -> Instant {
        self.started.checked_add(at).unwrap_or_else(|| Instant::now() + Duration::from_secs(3600))
    }

    /// A time of the wall clock on the core's clock; what has passed is now.
    pub(crate) fn at(&self, time: Timestamp) -> Duration {
        let left = time.unix().saturating_mul(1000).saturating_sub(jiff::Timestamp::now().as_millisecond());
        self.now() + Duration::from_millis(u64::try_from(left).unwrap_or(0))
    }
}

pub(crate) fn wall_clock() -> Option<Timestamp> {
    Timestamp::from_unix(jiff::Timestamp::now().as_second())
}

/// How long schedulers may take. Upstream's agent does not apply the time limit for its scheduler, but that for patches, and its
/// scheduler waits a second for its own patch to come back.
fn patience(config: &AgentConfig) -> Patience {
    let ours = seconds(config.scheduler.request_timeout_seconds);
    Patience { ours, upstream: ours.max(seconds(config.neonvm.request_timeout_seconds)) }
}

/// The settings of the core, from the file.
fn settings(config: &AgentConfig) -> Settings {
    let (monitor, scheduler, neonvm) = (&config.monitor, &config.scheduler, &config.neonvm);
    let rate = |rate: FailedRate| FailureRate {
        interval: seconds(rate.interval_seconds),
        threshold: u32::try_from(rate.threshold).unwrap_or(u32::MAX),
    };
    Settings {
        compute_unit: config.scaling.compute_unit,
        defaults: config.scaling.default_config,
        neonvm_retry_wait: seconds(neonvm.retry_failed_request_seconds),
        plugin_request_tick: seconds(scheduler.request_at_least_every_seconds),
        plugin_retry_wait: seconds(scheduler.retry_failed_request_seconds),
        plugin_denied_retry_wait: seconds(scheduler.retry_denied_upscale_seconds),
        monitor_denied_downscale_cooldown: seconds(monitor.retry_denied_downscale_seconds),
        monitor_requested_upscale_valid_period: seconds(monitor.requested_upscale_valid_seconds),
        monitor_retry_wait: seconds(monitor.retry_failed_request_seconds),
        plugin_reply_deadline: patience(config).upstream + DEADLINE_MARGIN,
        neonvm_reply_deadline: seconds(neonvm.request_timeout_seconds) + DEADLINE_MARGIN,
        monitor_reply_deadline: seconds(monitor.response_timeout_seconds) + DEADLINE_MARGIN,
        monitor_unhealthy: seconds(monitor.unhealthy_after_silence_duration_seconds),
        monitor_silence: seconds(monitor.max_health_check_sequential_failures_seconds),
        monitor_startup_grace: seconds(monitor.unhealthy_startup_grace_period_seconds),
        plugin_failures: rate(scheduler.max_failed_request_rate),
        monitor_failures: rate(monitor.max_failed_request_rate),
        neonvm_failures: rate(neonvm.max_failed_request_rate),
        rereport_threshold: config.scaling_events.as_ref().map_or(0.25, |events| {
            // The core counts compute units, the file counts events' units.
            events.rereport_threshold / events.cu_multiplier
        }),
        ..Settings::SHIPPED
    }
}

impl Shared {
    /// The settings of one VM: its requests are a little early, by an amount that differs between VMs.
    pub(crate) fn settings_of(&self, uid: &str) -> Settings {
        let tick = self.settings.plugin_request_tick;
        Settings { plugin_request_tick: tick.saturating_sub(jitter(uid, TICK_JITTER)), ..self.settings }
    }
}

/// A part of `most` that is always the same for a name and spread evenly over names.
pub(crate) fn jitter(name: &str, most: Duration) -> Duration {
    // Any spread will do.
    let hash = fnv1a(name);
    let millis = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(if millis == 0 { 0 } else { (hash >> 8) % millis })
}

/// The hash FNV-1a, for what no attacker gains from.
pub(crate) fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
