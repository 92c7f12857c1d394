//! Does what the core wants done. Nothing here waits: each request is a task that reports back.

use std::sync::Arc;
use std::time::Duration;

use neonvm_core_vertical_scaling::agent::metrics::{parse_lfc, parse_system};
use neonvm_core_vertical_scaling::agent::{
    Action, Event, MetricsSource, Outcome, PatchError, PluginAnswer, SchedulerRequest,
};
use neonvm_kit::error::causes;
use neonvm_kit::supervise::catch;
use neonvm_types::monitor_protocol::AgentMessage;
use neonvm_types::scheduler_protocol::AgentRequest;
use neonvm_types::version::PluginProtoVersion;
use neonvm_types::{NamespacedName, Resources, Revision, RevisionWithTime};

use super::{Actor, later, report};
use crate::config::seconds;
use crate::metrics::Direction;
use crate::patch::{self, Change, Size};
use crate::scrape::Scraper;

impl Actor {
    pub(super) fn act(&mut self, outcome: Outcome) {
        for note in &outcome.notes {
            tracing::info!(vm = %self.identity.vm, "{note}");
        }
        for warning in &outcome.warnings {
            tracing::debug!(vm = %self.identity.vm, %warning, "decision");
        }
        self.shared.metrics.observe(&outcome);
        self.shared.scaling_events.send(&self.identity.vm, &outcome.scaling);
        for action in outcome.actions {
            match action {
                Action::AskScheduler { id, request } => self.ask_scheduler(id, &request),
                Action::PatchVm { id, from, to, revision } => self.patch(id, from, to, revision),
                Action::AskMonitorDownscale { id, from, to } => {
                    self.change = Some((id, from, to));
                    self.shared.metrics.monitor_change(from, to);
                    self.ask_monitor(id, AgentMessage::DownscaleRequest { target: to.into() });
                }
                Action::NotifyUpscale { id, from, to } => {
                    self.change = Some((id, from, to));
                    self.shared.metrics.monitor_change(from, to);
                    self.ask_monitor(id, AgentMessage::UpscaleNotification { granted: to.into() });
                }
                Action::ResetMonitor { reason } => {
                    tracing::warn!(vm = %self.identity.vm, reason, "the connection to the monitor is made again");
                    self.connect();
                }
            }
        }
    }

    fn ask_scheduler(&mut self, id: u64, request: &SchedulerRequest) {
        let (shared, inbox) = (Arc::clone(&self.shared), self.inbox.clone());
        let message = AgentRequest {
            proto_version: PluginProtoVersion::V5_0,
            pod: self.identity.pod.clone(),
            compute_unit: shared.settings.compute_unit,
            resources: request.target,
            last_permit: request.last_permit,
            metrics: request.metrics,
        };
        let vm = self.identity.vm.clone();
        self.work.spawn(async move {
            let asked = catch(async {
                let asked = shared.scheduler.ask(&message).await;
                let code =
                    asked.as_ref().err().map_or_else(|| "200".to_owned(), crate::scheduler::Error::code);
                shared.metrics.scheduler(&code, message.last_permit, message.resources, asked.as_ref().ok());
                asked
                    .map(|answer| PluginAnswer { permit: answer.permit, migrate: answer.migrate.is_some() })
                    .map_err(|error| causes(&error))
            });
            let result = asked.await.unwrap_or_else(|panic| Err(panicked(&vm, &panic)));
            if let Err(error) = &result {
                tracing::warn!(%vm, error, "the scheduler gave no permit");
            }
            report(inbox, Event::PluginReply { id, result }).await;
        });
    }

    fn patch(&mut self, id: u64, from: Resources, to: Resources, revision: Revision) {
        let (shared, inbox, identity) = (Arc::clone(&self.shared), self.inbox.clone(), self.identity.clone());
        let revision = RevisionWithTime { revision, updated_at: crate::shared::wall_clock() };
        self.work.spawn(async move {
            let sizes =
                Size::from_resources(from, identity.slot).zip(Size::from_resources(to, identity.slot));
            let result = match sizes {
                None => Err(PatchError::Failed(format!("{} is no number of memory slots", to.mem))),
                Some((from, to)) => {
                    let change = Change {
                        vm: identity.vm.clone(),
                        uid: identity.uid,
                        generation: identity.generation,
                        from,
                        to,
                        revision: Some(revision),
                    };
                    let within = seconds(shared.config.neonvm.request_timeout_seconds);
                    let applied = catch(patch::apply(&shared.client, &change, within)).await;
                    applied
                        .map_err(|panic| PatchError::Failed(panicked(&identity.vm, &panic)))
                        .and_then(|applied| applied.map_err(|error| refused(&identity.vm, &error)))
                }
            };
            shared.metrics.patched(Direction::between(from, to), from, to, result.is_ok());
            report(inbox, Event::PatchReply { id, result }).await;
        });
    }

    fn ask_monitor(&mut self, id: u64, message: AgentMessage) {
        let sent = self.monitor.as_ref().is_some_and(|monitor| monitor.ask((id, message)));
        if !sent {
            let result = Err("there is no connection to the monitor".to_owned());
            let inbox = self.inbox.clone();
            self.work.spawn(report(inbox, Event::MonitorReply { id, result }));
        }
    }

    /// Starts to read metrics, after a pause that differs from VM to VM.
    pub(super) fn read_metrics(&mut self) {
        if self.paused {
            return;
        }
        let config = self.shared.config.metrics;
        let lfc = self.watched.lfc.then_some((MetricsSource::Lfc, config.lfc));
        for (source, settings) in [Some((MetricsSource::System, config.system)), lfc].into_iter().flatten() {
            let inbox = self.inbox.clone();
            let own = self.metrics_port.filter(|_| source == MetricsSource::System);
            let port = own.unwrap_or(settings.port);
            let mut scraper = Scraper::new(self.route.clone(), port, Arc::clone(&self.shared.tls));
            let (metric, identity) = (self.watched.metric.clone(), self.identity.clone());
            let (shared, disks) = (Arc::clone(&self.shared), self.watched.disks.clone());
            let every = seconds(settings.seconds_between_requests);
            let within = seconds(settings.request_timeout_seconds);
            // The first reading of load comes at once: the VM may be waiting for it. Then they spread out.
            let jitter = crate::shared::jitter(&identity.uid, every);
            let first = if source == MetricsSource::System { Duration::ZERO } else { jitter };
            self.loops.spawn(async move {
                let mut next = later(first);
                let mut skew = jitter;
                loop {
                    tokio::time::sleep_until(next).await;
                    next = later(every.saturating_sub(std::mem::take(&mut skew)));
                    let read = catch(async {
                        let page = scraper.read(within).await;
                        if let (MetricsSource::System, Ok(page)) = (source, &page) {
                            shared.disks.read(&identity.vm, page, &disks);
                        }
                        understand(source, page, metric.as_deref())
                    });
                    let event = read.await.unwrap_or_else(|panic| {
                        let reason = panicked(&identity.vm, &panic);
                        Event::MetricsFailed { source, reason }
                    });
                    if let Event::MetricsFailed { reason, .. } = &event {
                        tracing::debug!(vm = %identity.vm, reason, "metrics cannot be read");
                    }
                    report(inbox.clone(), event).await;
                }
            });
        }
    }
}

/// The result of a request that panicked: it failed. Otherwise the core would wait for its own time limit.
fn panicked(vm: &NamespacedName, panic: &str) -> String {
    tracing::error!(%vm, panic, "a request panicked");
    format!("the request panicked: {panic}")
}

fn refused(vm: &NamespacedName, error: &patch::Error) -> PatchError {
    tracing::warn!(%vm, %error, "the VM was not changed");
    if error.is_conflict() { PatchError::Conflict } else { PatchError::Failed(causes(error)) }
}

fn understand(source: MetricsSource, text: Result<bytes::Bytes, String>, metric: Option<&str>) -> Event {
    let read = text.and_then(|text| match source {
        MetricsSource::System => {
            parse_system(&text, metric).map(Event::SystemMetrics).map_err(|error| error.to_string())
        }
        MetricsSource::Lfc => parse_lfc(&text).map(Event::LfcMetrics).map_err(|error| error.to_string()),
    });
    read.unwrap_or_else(|reason| Event::MetricsFailed { source, reason })
}
