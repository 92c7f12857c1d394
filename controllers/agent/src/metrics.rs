//! Metrics, under the names of upstream's agent.

mod per_vm;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use neonvm_core_vertical_scaling::agent::Outcome;
use neonvm_core_vertical_scaling::agent::action::LatencyOf;
use neonvm_kit::expiry::Expiry;
use neonvm_kit::metrics::{Counter, Family, Gauge, Histogram, Page, Registry};
use neonvm_kit::watch_metrics::WatchMetrics;
use neonvm_types::scheduler_protocol::PluginResponse;
use neonvm_types::{Resources, RevisionFlags};

pub(crate) use per_vm::per_vm;

/// Upper ends of latencies, in seconds.
const ENDS: [f64; 38] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25,
    1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 60.0,
];
/// Most series of a family with a label for the error; texts of errors vary.
const MOST_CODES: usize = 64;

/// Which way a size changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Direction {
    Inc,
    Dec,
}

impl Direction {
    /// The direction of a change; one that goes both ways counts as growth.
    pub(crate) fn between(from: Resources, to: Resources) -> Self {
        if to.any_greater(from) { Self::Inc } else { Self::Dec }
    }

    const fn label(self) -> &'static str {
        match self {
            Self::Inc => "inc",
            Self::Dec => "dec",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExporterNames {
    pub(crate) queue: &'static str,
    pub(crate) took: &'static str,
    pub(crate) errors: &'static str,
    pub(crate) dropped: &'static str,
}

/// Metrics of a kind of exporter. Label: the client.
#[derive(Clone, Debug)]
pub(crate) struct ExporterMetrics {
    pub(crate) queue: Family<Gauge, 1>,
    pub(crate) took: Family<Gauge, 1>,
    /// Labels: client and cause.
    pub(crate) errors: Family<Counter, 2>,
    pub(crate) dropped: Family<Counter, 1>,
}

/// Cores and mebibytes by which sizes change, by direction.
#[derive(Debug)]
struct Change {
    cpu: Family<Counter, 1>,
    mem: Family<Counter, 1>,
}

impl Change {
    fn new(
        registry: &Registry,
        [cpu, mem]: [&'static str; 2],
        [cpu_help, mem_help]: [&'static str; 2],
    ) -> Self {
        let family = |name, help| registry.counters(name, help, ["direction"]);
        Self { cpu: family(cpu, cpu_help), mem: family(mem, mem_help) }
    }

    fn add(&self, direction: Direction, from: Resources, to: Resources) {
        let direction = [direction.label()];
        self.cpu.with(direction).add((cores(to) - cores(from)).abs());
        self.mem.with(direction).add((mebibytes(to) - mebibytes(from)).abs());
    }
}

/// Everything that is counted.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    exporters: Mutex<Vec<(ExporterNames, ExporterMetrics)>>,
    next_actions: Counter,
    runner_starts: Counter,
    runner_restarts: Counter,
    runner_panics: Counter,
    billed: Billed,
    pub(crate) watches: WatchMetrics,
    scaling_events: Family<Counter, 1>,
    latencies: Latencies,
    scheduler: Scheduler,
    neonvm_requests: Family<Counter, 1>,
    neonvm_requested: Change,
    monitor_outbound: Family<Counter, 2>,
    monitor_inbound: Family<Counter, 2>,
    monitor_requested: Change,
    informants: InformantRequests,
    monitor_approved: Change,
    pub(crate) certificates: Expiry,
}

/// VMs as billing sees them, by whether they have an endpoint, whether they are scaled, and phase.
#[derive(Debug)]
struct Billed {
    processed: Family<Counter, 3>,
    current: Family<Gauge, 3>,
    last: Mutex<BTreeMap<BilledLabels, u32>>,
}

type BilledLabels = (&'static str, &'static str, String);

impl Billed {
    fn new(registry: &Registry) -> Self {
        let labels = ["is_endpoint", "autoscaling_enabled", "phase"];
        Self {
            processed: registry.counters(
                "autoscaling_agent_billing_vms_processed_total",
                "VMs of which usage was sampled, counted with each sample.",
                labels,
            ),
            current: registry.gauges(
                "autoscaling_agent_billing_vms_current",
                "VMs at the last sample of usage.",
                labels,
            ),
            last: Mutex::default(),
        }
    }

    fn sample(&self, vms: impl IntoIterator<Item = BilledLabels>) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.values_mut().for_each(|count| *count = 0);
        for vm in vms {
            self.processed.with([vm.0, vm.1, &vm.2]).inc();
            *last.entry(vm).or_default() += 1;
        }
        for ((endpoint, enabled, phase), count) in &*last {
            self.current.with([endpoint, enabled, phase]).set(f64::from(*count));
        }
    }
}

/// How long stages of a change of size take, by direction.
#[derive(Debug)]
struct Latencies {
    scaling: Family<Histogram, 1>,
    plugin: Family<Histogram, 1>,
    monitor: Family<Histogram, 1>,
    neonvm: Family<Histogram, 1>,
}

impl Latencies {
    fn new(registry: &Registry) -> Self {
        let family = |name, help| registry.histograms(name, help, ["direction"], &ENDS);
        Self {
            scaling: family(
                "autoscaling_agent_scaling_latency_seconds",
                "From the decision about a size to the VM that has it.",
            ),
            plugin: family(
                "autoscaling_agent_plugin_latency_seconds",
                "The scheduler's part of the time of a change of size.",
            ),
            monitor: family(
                "autoscaling_agent_monitor_latency_seconds",
                "The monitor's part of the time of a change of size.",
            ),
            neonvm: family(
                "autoscaling_agent_neonvm_latency_seconds",
                "From the patch of a VM to the VM that has the size.",
            ),
        }
    }
}

fn cores(resources: Resources) -> f64 {
    resources.vcpus.as_f64()
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus values are doubles")]
fn mebibytes(resources: Resources) -> f64 {
    resources.mem.get() as f64 / f64::from(1 << 20)
}

/// Requests to the scheduler and what came of them.
#[derive(Debug)]
struct Scheduler {
    requests: Family<Counter, 1>,
    requested: Change,
    accepted: Change,
    full_denials: Family<Counter, 1>,
    partial_approvals: Family<Counter, 1>,
}

impl Scheduler {
    fn new(registry: &Registry) -> Self {
        let direction = |name, help| registry.counters(name, help, ["direction"]);
        Self {
            requests: registry.bounded_counters(
                "autoscaling_agent_scheduler_plugin_requests_total",
                "Requests to the scheduler, by status code or error.",
                ["code"],
                MOST_CODES,
            ),
            requested: Change::new(
                registry,
                [
                    "autoscaling_agent_scheduler_plugin_requested_cpu_change_total",
                    "autoscaling_agent_scheduler_plugin_requested_mem_change_total",
                ],
                ["Cores requested from the scheduler.", "Mebibytes requested from the scheduler."],
            ),
            accepted: Change::new(
                registry,
                [
                    "autoscaling_agent_scheduler_plugin_accepted_cpu_change_total",
                    "autoscaling_agent_scheduler_plugin_accepted_mem_change_total",
                ],
                ["Cores that the scheduler permitted.", "Mebibytes that the scheduler permitted."],
            ),
            full_denials: direction(
                "autoscaling_agent_scaling_full_denials_total",
                "Requests of which the scheduler permitted nothing.",
            ),
            partial_approvals: direction(
                "autoscaling_agent_scaling_partial_approvals_total",
                "Requests of which the scheduler permitted a part.",
            ),
        }
    }
}

/// Requests between the agent and informants.
#[derive(Debug)]
struct InformantRequests {
    outbound: Family<Counter, 1>,
    inbound: Family<Counter, 2>,
}

impl InformantRequests {
    fn new(registry: &Registry) -> Self {
        Self {
            outbound: registry.bounded_counters(
                "autoscaling_agent_informant_outbound_requests_total",
                "Requests to informants, by status code or error.",
                ["code"],
                MOST_CODES,
            ),
            inbound: registry.counters(
                "autoscaling_agent_informant_inbound_requests_total",
                "Requests of informants, by path and status code.",
                ["endpoint", "code"],
            ),
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let registry = Registry::new();
        Self {
            exporters: Mutex::default(),
            next_actions: registry.counter(
                "autoscaling_agent_runner_next_actions_total",
                "Decisions about what is to be done next for a VM.",
            ),
            runner_starts: registry
                .counter("autoscaling_agent_runner_starts", "VMs that began to be scaled."),
            runner_restarts: registry.counter(
                "autoscaling_agent_runner_restarts",
                "Tasks of VMs that were started again after a panic.",
            ),
            runner_panics: registry
                .counter("autoscaling_agent_runner_thread_panics_total", "Tasks of VMs that panicked."),
            billed: Billed::new(&registry),
            watches: WatchMetrics::new(&registry, &neonvm_kit::watch_names!("autoscaling_agent_watchers")),
            scaling_events: registry.counters(
                "autoscaling_agent_scaling_events_total",
                "Scaling events, by kind.",
                ["kind"],
            ),
            latencies: Latencies::new(&registry),
            scheduler: Scheduler::new(&registry),
            neonvm_requests: registry.counters(
                "autoscaling_agent_neonvm_outbound_requests_total",
                "Patches of VMs, by result.",
                ["result"],
            ),
            neonvm_requested: Change::new(
                &registry,
                // The second name is irregular upstream.
                [
                    "autoscaling_agent_neonvm_requested_cpu_change_total",
                    "autoscaling_agent_neonvm_requested_mem_changed_total",
                ],
                ["Cores requested by patches of VMs.", "Mebibytes requested by patches of VMs."],
            ),
            monitor_outbound: registry.bounded_counters(
                "autoscaling_agent_monitor_outbound_requests_total",
                "Requests to monitors, by their kind and by code or error.",
                ["endpoint", "code"],
                MOST_CODES,
            ),
            monitor_inbound: registry.counters(
                "autoscaling_agent_monitor_inbound_requests_total",
                "Requests of monitors, by their kind.",
                ["endpoint", "code"],
            ),
            monitor_requested: Change::new(
                &registry,
                [
                    "autoscaling_agent_monitor_requested_cpu_change_total",
                    "autoscaling_agent_monitor_requested_mem_change_total",
                ],
                ["Cores requested from monitors.", "Mebibytes requested from monitors."],
            ),
            informants: InformantRequests::new(&registry),
            monitor_approved: Change::new(
                &registry,
                [
                    "autoscaling_agent_monitor_approved_cpu_change_total",
                    "autoscaling_agent_monitor_approved_mem_change_total",
                ],
                ["Cores that monitors acknowledged.", "Mebibytes that monitors acknowledged."],
            ),
            certificates: Expiry::new(&registry),
            registry,
        }
    }
}

impl Metrics {
    /// The metrics of a kind of exporter: the same for the same names.
    pub(crate) fn exporter(&self, names: ExporterNames) -> ExporterMetrics {
        let mut exporters = self.exporters.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = exporters.iter().find(|(own, _)| *own == names) {
            return known.clone();
        }
        let registry = &self.registry;
        let exporter = ExporterMetrics {
            queue: registry.gauges(names.queue, "Events that wait to be sent.", ["client"]),
            took: registry.gauges(
                names.took,
                "Time of the last attempt to send events, in seconds; 0 if it failed.",
                ["client"],
            ),
            errors: registry.bounded_counters(
                names.errors,
                "Attempts to send events that failed.",
                ["client", "cause"],
                MOST_CODES,
            ),
            dropped: registry.counters(names.dropped, "Events that were given up.", ["client"]),
        };
        exporters.push((names, exporter.clone()));
        exporter
    }

    /// A VM begins to be scaled.
    pub(crate) fn runner_started(&self) {
        self.runner_starts.inc();
    }

    /// The task of a VM panicked.
    pub(crate) fn runner_panicked(&self) {
        self.runner_panics.inc();
    }

    /// A task that had panicked was started again.
    pub(crate) fn runner_restarted(&self) {
        self.runner_restarts.inc();
    }

    /// Usage of these VMs was sampled: whether each has an endpoint, whether it is scaled, and its phase.
    pub(crate) fn sampled(&self, vms: impl IntoIterator<Item = (bool, bool, String)>) {
        let word = |is: bool| if is { "true" } else { "false" };
        let labels = |(endpoint, enabled, phase)| (word(endpoint), word(enabled), phase);
        self.billed.sample(vms.into_iter().map(labels));
    }

    pub(crate) fn scaling_event(&self, kind: &str) {
        self.scaling_events.with([kind]).inc();
    }

    /// What a step of a core finished.
    pub(crate) fn observe(&self, outcome: &Outcome) {
        self.next_actions.inc();
        for latency in &outcome.latencies {
            let family = match latency.of {
                LatencyOf::Scaling => &self.latencies.scaling,
                LatencyOf::Plugin => &self.latencies.plugin,
                LatencyOf::Monitor => &self.latencies.monitor,
                LatencyOf::NeonVm => &self.latencies.neonvm,
            };
            let up = latency.flags.contains(RevisionFlags::UPSCALE);
            let down = latency.flags.contains(RevisionFlags::DOWNSCALE);
            let direction = match (up, down) {
                (true, true) => "both",
                (true, false) => "inc",
                (false, true) => "dec",
                (false, false) => "none",
            };
            family.with([direction]).observe(latency.took);
        }
    }

    /// A request to the scheduler, and what it permitted.
    pub(crate) fn scheduler(
        &self,
        code: &str,
        last: Option<Resources>,
        target: Resources,
        answer: Option<&PluginResponse>,
    ) {
        self.scheduler.requests.with([code]).inc();
        let Some(last) = last.filter(|last| *last != target) else { return };
        let direction = Direction::between(last, target);
        self.scheduler.requested.add(direction, last, target);
        let Some(PluginResponse { permit, .. }) = answer else { return };
        self.scheduler.accepted.add(direction, last, *permit);
        if *permit == last {
            self.scheduler.full_denials.with([direction.label()]).inc();
        } else if target.any_greater(*permit) {
            self.scheduler.partial_approvals.with([direction.label()]).inc();
        }
    }

    pub(crate) fn patched(&self, direction: Direction, from: Resources, to: Resources, done: bool) {
        let result = if done { "ok" } else { "error" };
        self.neonvm_requests.with([result]).inc();
        self.neonvm_requested.add(direction, from, to);
    }

    pub(crate) fn monitor_asked(&self, kind: &str, code: &str) {
        self.monitor_outbound.with([kind, code]).inc();
    }

    pub(crate) fn monitor_change(&self, from: Resources, to: Resources) {
        self.monitor_requested.add(Direction::between(from, to), from, to);
    }

    /// A change that a monitor acknowledged.
    pub(crate) fn monitor_approved(&self, from: Resources, to: Resources) {
        self.monitor_approved.add(Direction::between(from, to), from, to);
    }

    pub(crate) fn monitor_asks(&self, kind: &str) {
        self.monitor_inbound.with([kind, "ok"]).inc();
    }

    pub(crate) fn informant_asked(&self, code: &str) {
        self.informants.outbound.with([code]).inc();
    }

    pub(crate) fn informant_asks(&self, path: &str, status: u16) {
        self.informants.inbound.with([path, &status.to_string()]).inc();
    }

    /// A page with all of it.
    pub(crate) fn page(&self) -> Page {
        self.registry.page()
    }
}

#[cfg(test)]
mod tests;
