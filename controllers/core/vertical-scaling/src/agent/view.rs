//! What a person is shown of one VM.

use std::time::Duration;

use neonvm_types::{
    Resources, Timestamp,
    agent_history::Sample,
    agent_inspect::{self, HoldInspect, VmInspect},
};
use serde::Serialize;

use crate::agent::{note::Note, state::State};

/// One VM at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct View {
    /// Name of the VM.
    pub name: String,
    pub namespace: String,
    /// The observed size.
    pub now: Resources,
    /// The requested size.
    pub asked: Resources,
    /// The desired size, which follows from the goal.
    pub goal: Resources,
    /// The permit; `None` before the first.
    pub permit: Option<Resources>,
    /// The approved size; `None` without a monitor.
    pub approved: Option<Resources>,
    /// The step in which the VM scales.
    pub compute_unit: Resources,
    /// Lower bound.
    pub min: Resources,
    /// Upper bound.
    pub max: Resources,
    /// One-minute load average.
    pub load1: Option<f64>,
    /// Memory in use, in bytes.
    pub memory_used: Option<u64>,
    /// Working set of the file cache, in bytes.
    pub cache_working_set: Option<u64>,
    pub metrics_age: Option<Duration>,
    /// The current activity, in words.
    pub state: String,
    /// What a peer fails to do for long, in words.
    pub stuck: Option<String>,
    /// What keeps the VM at its size although all works.
    pub limit: Option<String>,
    /// The size a person fixed, and for how much longer.
    pub hold: Option<(Resources, Duration)>,
    /// Whether its CPU needs no consent.
    pub forced: bool,
    /// For how long the scheduler has announced a migration.
    pub announced: Option<Duration>,
    /// Requests that failed within their intervals.
    pub failed: agent_inspect::FailedRequests,
    /// How long ago the monitor last served a request.
    pub monitor_served: Option<Duration>,
    /// What each metric alone calls for.
    pub parts: agent_inspect::GoalParts,
    /// Replies that came too late or twice.
    pub stale_replies: u64,
    /// The last decisions, oldest first.
    pub decisions: Vec<Note>,
}

/// A count of bytes; what is negative or no number is 0.
fn whole(bytes: f64) -> u64 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast of floats saturates")]
    let whole = bytes as u64;
    whole
}

/// UTC, RFC 3339 with milliseconds; empty outside the years 0 to 9999.
fn rfc3339_ms(unix_ms: i64) -> String {
    let Some(second) = Timestamp::from_unix(unix_ms.div_euclid(1000)) else { return String::new() };
    let text = second.to_string();
    format!("{}.{:03}Z", text.trim_end_matches('Z'), unix_ms.rem_euclid(1000))
}

impl State {
    /// What a person is shown.
    #[must_use]
    pub fn view(&self, now: Duration) -> View {
        let now = now.max(self.clock);
        let info = &self.vm.info;
        let desired = self.desired(now);
        let system = self.known.system.as_ref();
        View {
            name: info.name.clone(),
            namespace: info.namespace.clone(),
            now: self.machine.now,
            asked: self.machine.asked,
            goal: desired.size,
            permit: self.plugin.permit,
            approved: self.monitor.approved(),
            compute_unit: self.settings.compute_unit,
            min: info.min(),
            max: info.max(),
            load1: system.map(|(_, metrics)| metrics.load1),
            memory_used: system.map(|(_, metrics)| whole(metrics.memory_usage_bytes)),
            cache_working_set: self.goal(now).working_set.map(whole),
            metrics_age: system.map(|(at, _)| now.saturating_sub(*at)),
            state: self.activity(now, &desired),
            stuck: self.stuck(now),
            limit: self.limit(now, &desired),
            hold: self.hold(now).map(|(size, until)| (size, until.saturating_sub(now))),
            forced: self.vm.forced,
            announced: self.announced_since().map(|since| now.saturating_sub(since)),
            failed: self.failed(now),
            monitor_served: self.monitor.served_at.map(|at| now.saturating_sub(at)),
            parts: {
                let parts = self.goal(now).parts;
                agent_inspect::GoalParts { cpu: parts.cpu, mem: parts.mem, lfc: parts.lfc }
            },
            stale_replies: self.stale_replies,
            decisions: self.trace.iter().cloned().collect(),
        }
    }
}

impl State {
    /// The sizes and the load alone, for the history of the VM.
    #[must_use]
    pub fn sample(&self, now: Duration) -> Sample {
        let now = now.max(self.clock);
        let system = self.known.system.as_ref().map(|(_, metrics)| metrics);
        Sample {
            now: self.machine.now,
            goal: self.desired(now).size,
            permit: self.plugin.permit,
            load1: system.map(|metrics| metrics.load1),
            memory_used_bytes: system.map(|metrics| whole(metrics.memory_usage_bytes)),
        }
    }

    /// A moment of the clock of `step` in milliseconds since 1970, as [`View::to_inspect`] has it.
    #[must_use]
    pub fn unix_ms(at: Duration, epoch_unix_ms: i64) -> i64 {
        i64::try_from(at.as_millis()).unwrap_or(i64::MAX).saturating_add(epoch_unix_ms)
    }
}

impl View {
    /// The document for tools. `epoch_unix_ms` is the wall clock, in milliseconds since 1970, at which the clock of
    /// `step` was zero.
    #[must_use]
    pub fn to_inspect(&self, epoch_unix_ms: i64) -> VmInspect {
        let decision = |note: &Note| agent_inspect::Decision {
            at: rfc3339_ms(State::unix_ms(note.at, epoch_unix_ms)),
            text: note.to_string(),
            reason: note.reason().map(str::to_owned),
        };
        VmInspect {
            name: self.name.clone(),
            namespace: self.namespace.clone(),
            now: Some(self.now),
            asked: Some(self.asked),
            goal: Some(self.goal),
            permit: self.permit,
            approved: self.approved,
            guest_protocol: None,
            compute_unit: self.compute_unit,
            min: self.min,
            max: self.max,
            load1: self.load1,
            memory_used_bytes: self.memory_used,
            cache_working_set_bytes: self.cache_working_set,
            metrics_age_seconds: self.metrics_age.map(|age| age.as_secs_f64()),
            state: self.state.clone(),
            stuck: self.stuck.clone(),
            limit: self.limit.clone(),
            hold: self.hold.map(|(size, left)| HoldInspect {
                size,
                remaining_seconds: left.as_secs_f64(),
                force: self.forced,
            }),
            failed_requests: self.failed,
            monitor_served_seconds_ago: self.monitor_served.map(|elapsed| elapsed.as_secs_f64()),
            goal_parts: Some(self.parts),
            migration_announced_seconds: self.announced.map(|elapsed| elapsed.as_secs_f64()),
            decisions: self.decisions.iter().map(decision).collect(),
            // Known to the task alone.
            background_tasks: 0,
            monitor_waiting: None,
        }
    }
}
